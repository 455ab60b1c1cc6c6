// The binary itself, run as people run it: sessions that survive their process, and the cache
// commands.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/small_store_for_tests.h"

namespace emberkv {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const std::string kModel = EMBERKV_SOURCE_DIR "/models/ember-tiny";

struct Finished {
  int exit_code = -1;
  std::string out;
  std::string err;

  json last_line() const {
    const size_t end = out.find_last_not_of('\n') + 1;
    const size_t begin = out.rfind('\n', end - 1) + 1;  // npos + 1 is 0
    return json::parse(out.substr(begin, end - begin), nullptr, false);
  }
};

// Runs `emberkv` with the arguments; `on_line` is told of every line with the process's id.
Finished RunEmberkv(std::vector<std::string> arguments, const std::string& error_file,
                    const std::function<void(pid_t)>& on_line = {}) {
  arguments.insert(arguments.begin(), EMBERKV_BINARY);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  int fds[2];
  EXPECT_EQ(::pipe(fds), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int errors = ::open(error_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(fds[1], STDOUT_FILENO);
    ::dup2(errors, STDERR_FILENO);
    ::close(fds[0]);
    ::close(fds[1]);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(fds[1]);
  Finished finished;
  char buffer[4096];
  for (ssize_t n; (n = ::read(fds[0], buffer, sizeof buffer)) > 0;) {
    finished.out.append(buffer, static_cast<size_t>(n));
    if (on_line && std::string_view(buffer, static_cast<size_t>(n)).ends_with('\n')) on_line(pid);
  }
  ::close(fds[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  std::ostringstream errors;
  errors << std::ifstream(error_file).rdbuf();
  finished.err = errors.str();
  return finished;
}

// The folder has the document, its answer, and a place for a store that the binary makes.
class StoreEndToEnd : public ::testing::Test {
 protected:
  StoreEndToEnd() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ =
        std::filesystem::path(::testing::TempDir()) / (std::string("emberkv_e2e_") + test->name());
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    std::ifstream prompts(kModel + "/eval_prompts.jsonl");
    std::string line;
    std::getline(prompts, line);
    const json prompt = json::parse(line);
    document_ = prompt["prompt"];
    expected_ = prompt["expected"];
    WriteDocument(document_);
  }
  ~StoreEndToEnd() override { std::filesystem::remove_all(dir_); }

  std::string store() const { return (dir_ / "store").string(); }
  void WriteDocument(const std::string& text) const {
    std::ofstream(dir_ / "document.txt") << text;
  }

  Finished Emberkv(std::vector<std::string> arguments,
                   const std::function<void(pid_t)>& on_line = {}) const {
    return RunEmberkv(std::move(arguments), (dir_ / "errors").string(), on_line);
  }

  // Continues the document, which ends in a question.
  Finished RunWith(std::vector<std::string> more,
                   const std::function<void(pid_t)>& on_line = {}) const {
    std::vector<std::string> arguments = {
        "run",         "--model", kModel,  "--file",       (dir_ / "document.txt").string(),
        "--json",      "--store", store(), "--store-size", "64M",
        "--kv-memory", "16M"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Emberkv(std::move(arguments), on_line);
  }

  Finished Explain() const {
    return Emberkv({"cache", "explain", "--store", store(), "--model", kModel, "--file",
                    (dir_ / "document.txt").string(), "--json"});
  }

  // The text of the answer, as the first line tells it.
  static std::string AnswerOf(const Finished& run) {
    const json answer = json::parse(run.out.substr(0, run.out.find('\n')), nullptr, false);
    const std::string text = answer.value("text", "");
    return text.substr(std::min(text.find_first_not_of(' '), text.size()));
  }
  std::string Expected() const {
    return expected_.substr(std::min(expected_.find_first_not_of(' '), expected_.size()));
  }

  std::filesystem::path dir_;
  std::string document_;
  std::string expected_;
};

TEST_F(StoreEndToEnd, TheSecondRunStartsWarmAndAnswersTheSame) {
  const Finished cold = RunWith({});
  ASSERT_EQ(cold.exit_code, 0) << cold.err;
  EXPECT_EQ(AnswerOf(cold), Expected());
  const json first = cold.last_line();
  EXPECT_EQ(first["reuse"]["hit_tokens"], 0);
  EXPECT_EQ(first["reuse"]["miss_reason"], "never seen");
  EXPECT_GE(first["store"]["stored"], 3);
  EXPECT_EQ(first["store"]["unwritten"], 0);

  const json forecast = Explain().last_line();
  const Finished warm = RunWith({});
  ASSERT_EQ(warm.exit_code, 0) << warm.err;
  EXPECT_EQ(AnswerOf(warm), Expected());
  const json second = warm.last_line();
  EXPECT_GE(second["reuse"]["hit_tokens"], 3 * 128);
  EXPECT_EQ(second["reuse"]["hit_tokens"], 128 * second["reuse"]["blocks"]["store"].get<int>());
  EXPECT_EQ(second["reuse"]["bytes_read"],
            second["reuse"]["blocks"]["store"].get<int>() * second["kv_page_bytes"].get<int>());
  EXPECT_EQ(
      second["reuse"]["computed_tokens"].get<int>() + second["reuse"]["hit_tokens"].get<int>(),
      second["prompt_tokens"]);
  EXPECT_EQ(second["store"]["evicted_before_deadline"], 0);
  // What `cache explain` said before is what the run did.
  for (const char* field : {"hit_tokens", "replayed_tokens", "computed_tokens", "provenance"}) {
    EXPECT_EQ(forecast[field], second["reuse"][field]) << field;
  }
}

TEST_F(StoreEndToEnd, TheTableTellsWhatWasReused) {
  ASSERT_EQ(RunWith({}).exit_code, 0);
  const Finished run =
      Emberkv({"run", "--model", kModel, "--file", (dir_ / "document.txt").string(), "--store",
               store(), "--store-size", "64M", "--kv-memory", "16M"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("0 blocks from memory, 3 from the store"));
  EXPECT_THAT(run.out, HasSubstr("no full block was missing"));
}

TEST_F(StoreEndToEnd, AnExplanationNamesWhereAPromptDiverges) {
  ASSERT_EQ(RunWith({}).exit_code, 0);
  std::string other = document_;
  const size_t at = other.find(" is ", other.size() / 2) + 4;
  other.insert(at, "not ");
  WriteDocument(other);
  const json why = Explain().last_line();
  EXPECT_EQ(why["miss_reason"], "diverges");
  EXPECT_GT(why["diverges_at_token"], why["hit_tokens"]);
  EXPECT_THAT(why["why"].get<std::string>(), HasSubstr("the text diverges at token"));
}

TEST_F(StoreEndToEnd, CorruptPagesAreFoundAndNeverServed) {
  ASSERT_EQ(RunWith({}).exit_code, 0);
  EXPECT_EQ(Emberkv({"cache", "verify", store()}).exit_code, 0);
  {
    std::fstream file(store() + "/segment-00000001",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5000);
    const int byte = file.get();
    file.seekp(5000);
    file.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(file.good());
  }
  const Finished run = RunWith({"--no-store"});
  EXPECT_EQ(AnswerOf(run), Expected());
  EXPECT_LT(run.last_line()["reuse"]["hit_tokens"], 3 * 128);
  EXPECT_EQ(run.last_line()["reuse"]["miss_reason"], "corrupt");

  // The page is quarantined: the rest is sound, and one is gone.
  const Finished verified = Emberkv({"cache", "verify", store(), "--json"});
  EXPECT_EQ(verified.exit_code, 0);
  EXPECT_EQ(Explain().last_line()["miss_reason"], "quarantined");
}

TEST_F(StoreEndToEnd, VerifyFailsOnWhatIsCorrupt) {
  ASSERT_EQ(RunWith({}).exit_code, 0);
  {
    std::fstream file(store() + "/segment-00000001",
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4);  // in the magic of the first record
    file.put('\0');
    ASSERT_TRUE(file.good());
  }
  const Finished verified = Emberkv({"cache", "verify", store(), "--json"});
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_EQ(verified.last_line()["corrupt"], 1);
}

TEST_F(StoreEndToEnd, NoStoreLeavesNothingBehind) {
  const Finished run = RunWith({"--no-store"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.last_line()["store"]["pages"], 0);
}

TEST_F(StoreEndToEnd, CtrlCStoresWhatIsComplete) {
  std::vector<std::string> prompts;
  for (int i = 0; i < 2000; ++i)
    prompts.insert(prompts.end(), {"--prompt", "Question: What is it?"});
  bool is_sent = false;
  const Finished run = RunWith(prompts, [&](pid_t pid) {
    if (!is_sent) ::kill(pid, SIGINT);
    is_sent = true;
  });
  EXPECT_EQ(run.exit_code, 130) << run.err;
  EXPECT_GE(run.last_line()["store"]["stored"], 3);
  EXPECT_EQ(run.last_line()["store"]["unwritten"], 0);
  EXPECT_GE(Explain().last_line()["hit_tokens"], 3 * 128);
}

TEST_F(StoreEndToEnd, AStoreInUseIsRefusedWithItsOwner) {
  FakeClock clock;
  LocalStoreOptions options;
  options.directory = store();
  options.budget_bytes = uint64_t{64} << 20;
  const auto held = LocalStore::Open(options, &clock);
  ASSERT_TRUE(held.ok());
  const std::string owner = "in use by process " + std::to_string(::getpid());
  const std::vector<std::vector<std::string>> commands = {
      {"cache", "stat", store()},
      {"cache", "sweep", store()},
      {"cache", "erase", store(), "--tenant", "all"}};
  for (const auto& command : commands) {
    const Finished refused = Emberkv(command);
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr(owner));
  }
  const Finished run = RunWith({});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.out, "");
  EXPECT_THAT(run.err, HasSubstr(owner));
}

TEST_F(StoreEndToEnd, AStoreThatCannotBeMadeIsAMessage) {
  std::ofstream(dir_ / "store") << "a file";
  const Finished run = RunWith({});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.err, HasSubstr(store()));
}

TEST_F(StoreEndToEnd, StoreOptionsNeedAStore) {
  const Finished run = Emberkv({"run", "--model", kModel, "--prompt", "x", "--retention", "1h"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--store"));
}

}  // namespace
}  // namespace emberkv
