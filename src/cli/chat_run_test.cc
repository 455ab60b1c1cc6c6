// `emberkv run --chat` with the small model, in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/prompt_text.h"
#include "cli/run_command.h"

namespace emberkv {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr const char* kUser = "<｜User｜>";
constexpr const char* kAssistant = "<｜Assistant｜>";
const std::string kModel = EMBERKV_SOURCE_DIR "/models/ember-tiny";

TEST(ChatText, TheFirstPromptFollowsTheDocuments) {
  EXPECT_EQ(*FirstChatText({.system = "Be brief."}, "A fact.", "Which?"),
            "<｜begin▁of▁sentence｜><｜System｜>Be brief.<｜User｜>A "
            "fact.\nWhich?<｜Assistant｜></think>");
}

TEST(ChatText, TheNextPromptClosesAnAnswerThatHasNoEnd) {
  const ChatForm thinking{.system = "", .thinking_mode = ThinkingMode::kThinking};
  const std::string turn = "<｜User｜>q<｜Assistant｜>";
  EXPECT_EQ(*NextChatText({}, "a", true, "q"), turn + "</think>");
  EXPECT_EQ(*NextChatText({}, "a", false, "q"), "<｜end▁of▁sentence｜>" + turn + "</think>");
  EXPECT_EQ(*NextChatText(thinking, "r</think>a", false, "q"),
            "<｜end▁of▁sentence｜>" + turn + "<think>");
  EXPECT_EQ(*NextChatText(thinking, "r", false, "q"),
            "</think><｜end▁of▁sentence｜>" + turn + "<think>");
}

// The documents of a chat prompt that comes with the model, with two facts they hold.
class ChatRun : public ::testing::Test {
 protected:
  ChatRun() {
    std::ifstream prompts(kModel + "/eval_prompts.jsonl");
    for (std::string line; std::getline(prompts, line);) {
      const json prompt = json::parse(line);
      if (!prompt["chat"].get<bool>()) continue;
      const std::string text = prompt["prompt"];
      const size_t begin = text.find(kUser) + std::string_view(kUser).size();
      const size_t end = text.find(kAssistant);
      const size_t question = text.rfind('\n', end);
      std::ofstream(file_) << text.substr(begin, question - begin);
      question_ = text.substr(question + 1, end - question - 1);
      expected_ = prompt["expected"];
      break;
    }
  }
  ~ChatRun() override { std::filesystem::remove(file_); }

  // The lines that the command prints with --json.
  std::vector<json> Run(std::vector<std::string> arguments) {
    CLI::App app;
    int exit_code = -1;
    AddRunCommand(app, &exit_code);
    arguments.insert(arguments.begin(),
                     {"run", "--model", kModel, "--file", file_, "--kv-memory", "16M", "--json"});
    std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
    ::testing::internal::CaptureStdout();
    app.parse(arguments);
    std::istringstream out(::testing::internal::GetCapturedStdout());
    EXPECT_EQ(exit_code, 0);
    std::vector<json> lines;
    for (std::string line; std::getline(out, line);) lines.push_back(json::parse(line));
    return lines;
  }

  const std::string file_ = ::testing::TempDir() + "emberkv_chat_run.txt";
  std::string question_;
  std::string expected_;
};

TEST_F(ChatRun, AnswersAPlantedFactAndGoesOn) {
  const std::vector<json> lines = Run({"--chat", "--prompt", question_, "--prompt", question_});
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["text"], expected_);
  EXPECT_EQ(lines[0]["finish_reason"], "eos");
  EXPECT_EQ(lines[1]["text"], expected_);
  EXPECT_LT(lines[1]["prompt_tokens"], 30);  // its own turn only
}

TEST_F(ChatRun, ClosesTheThoughtBeforeItAnswers) {
  const std::vector<json> lines = Run({"--chat", "--think", "--prompt", question_});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["text"], "</think>" + expected_);
}

TEST_F(ChatRun, ASystemMessageGoesBeforeTheDocuments) {
  const std::vector<json> plain = Run({"--chat", "--prompt", question_});
  const std::vector<json> with_system =
      Run({"--chat", "--system", "The clerk", "--prompt", question_});
  ASSERT_EQ(with_system.size(), 2u);
  EXPECT_GE(with_system[0]["prompt_tokens"], plain[0]["prompt_tokens"].get<int>() + 3);
  EXPECT_EQ(with_system[0]["text"], expected_);
}

TEST(ChatOptions, AreRefusedWithoutChat) {
  for (const std::vector<std::string>& option :
       {std::vector<std::string>{"--think"}, {"a system message", "--system"}}) {
    CLI::App app;
    int exit_code = -1;
    AddRunCommand(app, &exit_code);
    std::vector<std::string> arguments = option;
    arguments.insert(arguments.end(), {"x", "--prompt", kModel, "--model", "run"});
    EXPECT_THROW(app.parse(arguments), CLI::RequiresError);
    EXPECT_EQ(exit_code, -1);
  }
}

}  // namespace
}  // namespace emberkv
