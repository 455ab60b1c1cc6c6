#include "server/answer_stream.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "prompt/answer_parser.h"
#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr AnswerForm kChat{.is_thinking = false, .parses_tool_calls = true};
constexpr AnswerForm kThinking{.is_thinking = true, .parses_tool_calls = true};

// The answer that deltas add up to.
struct Assembly {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;
  bool has_calls = false;

  void Add(const std::vector<AnswerDelta>& deltas) {
    for (const AnswerDelta& delta : deltas) {
      if (delta.kind == AnswerDelta::Kind::kCall) {
        EXPECT_EQ(delta.call, static_cast<int>(calls.size()));
        calls.push_back({"", delta.text, ""});
        continue;
      }
      EXPECT_FALSE(delta.text.empty());
      if (delta.kind == AnswerDelta::Kind::kReasoning) {
        EXPECT_TRUE(content.empty() && calls.empty());
        reasoning += delta.text;
      } else if (delta.kind == AnswerDelta::Kind::kContent) {
        content += delta.text;
      } else {
        ASSERT_EQ(delta.call + 1, static_cast<int>(calls.size()));
        calls.back().arguments += delta.text;
      }
    }
  }

  std::string Text() const {
    Json json = {{"reasoning", reasoning}, {"content", content}, {"has_calls", has_calls}};
    for (const ToolCall& call : calls) json["calls"].push_back({call.name, call.arguments});
    return json.dump();
  }
};

Assembly Assemble(const std::vector<std::string_view>& pieces, const AnswerForm& form) {
  AnswerStream stream(form);
  Assembly assembly;
  for (const std::string_view piece : pieces) assembly.Add(stream.Push(piece));
  assembly.Add(stream.Finish());
  assembly.has_calls = stream.has_calls();
  return assembly;
}

std::vector<std::string_view> Bytes(std::string_view text) {
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  return bytes;
}

// Every case of the official parser, the text as the engine gives it: without EOS.
struct ParseCase {
  std::string name;
  std::string text;
  AnswerForm form;
  Json message;  // null: the official parser refuses the text
};

std::vector<ParseCase> ParseCases() {
  std::ifstream file(EMBERKV_TEST_DATA "/golden/prompt/parse_cases.json");
  std::vector<ParseCase> cases;
  for (const Json& json : Json::parse(file)) {
    ParseCase read;
    read.name = json["name"];
    read.text = json["text"];
    if (read.text.ends_with(kEosText)) read.text.resize(read.text.size() - kEosText.size());
    read.form = json["thinking_mode"] == "thinking" ? kThinking : kChat;
    if (json.contains("message")) read.message = json["message"];
    cases.push_back(std::move(read));
  }
  return cases;
}

TEST(AnswerStream, GivesTheOfficialParsersMessageHoweverTheTextIsCut) {
  int num_messages = 0;
  for (const ParseCase& golden : ParseCases()) {
    SCOPED_TRACE(golden.name);
    const Assembly whole = Assemble({golden.text}, golden.form);
    if (!golden.message.is_null()) {
      ++num_messages;
      EXPECT_EQ(whole.reasoning, golden.message["reasoning_content"]);
      EXPECT_EQ(whole.content, golden.message["content"]);
      ASSERT_EQ(whole.calls.size(), golden.message["tool_calls"].size());
      EXPECT_EQ(whole.has_calls, !whole.calls.empty());
      for (size_t i = 0; i < whole.calls.size(); ++i) {
        EXPECT_EQ(whole.calls[i].name, golden.message["tool_calls"][i]["function"]["name"]);
        EXPECT_EQ(whole.calls[i].arguments, golden.message["tool_calls"][i]["function"]["arguments"]);
      }
    }
    EXPECT_EQ(Assemble(Bytes(golden.text), golden.form).Text(), whole.Text());
    const std::string_view text = golden.text;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      ASSERT_EQ(Assemble({text.substr(0, cut), text.substr(cut)}, golden.form).Text(), whole.Text()) << cut;
    }
  }
  EXPECT_GE(num_messages, 14);
}

TEST(AnswerStream, ACallThatBreaksOffHasNoClosingBrace) {
  const std::string whole =
      "a\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">1 \"é\""
      "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  ASSERT_EQ(Assemble({whole}, kChat).calls.at(0).arguments, R"({"x": "1 \"é\""})");
  const size_t invoke_end = whole.find("</｜DSML｜ invoke") + kInvokeEnd.size();
  for (size_t size = 0; size < whole.size(); ++size) {
    const Assembly part = Assemble({std::string_view(whole).substr(0, size)}, kChat);
    EXPECT_FALSE(part.has_calls) << size;
    if (size < invoke_end && !part.calls.empty()) {
      EXPECT_FALSE(part.calls[0].arguments.ends_with('}')) << size;
    }
  }
}

TEST(AnswerStream, WhatIsNoBlockOfCallsIsContent) {
  EXPECT_EQ(Assemble({"x\n\n<｜DSML｜ calls> they say"}, kChat).content, "x\n\n<｜DSML｜ calls> they say");
  const std::string bad_name = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=f>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  EXPECT_EQ(Assemble({bad_name}, kChat).content,
            "<｜DSML｜ invoke name=f>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>");
  EXPECT_TRUE(Assemble({bad_name}, kChat).calls.empty());
}

TEST(AnswerStream, TextAfterCallsIsContent) {
  const std::string calls = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  const Assembly assembly = Assemble({calls, "tail"}, kChat);
  EXPECT_EQ(assembly.content, "tail");
  EXPECT_EQ(assembly.calls.at(0).arguments, "{}");
  EXPECT_TRUE(assembly.has_calls);
}

TEST(AnswerStream, WithoutToolsABlockOfCallsIsText) {
  const std::string calls = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";
  EXPECT_EQ(Assemble(Bytes(calls), {}).content, calls);
}

TEST(AnswerStream, AnUnfinishedThoughtIsReasoning) {
  const Assembly assembly = Assemble({"so </thin"}, kThinking);
  EXPECT_EQ(assembly.reasoning, "so </thin");
  EXPECT_EQ(assembly.content, "");
}

TEST(AnswerStream, NeverCutsACharacter) {
  const std::string text = "é€😀<é\n😀";
  AnswerStream stream({});
  std::string joined;
  for (const std::string_view byte : Bytes(text)) {
    for (const AnswerDelta& delta : stream.Push(byte)) {
      EXPECT_NO_THROW(static_cast<void>(Json(delta.text).dump())) << "cut inside a character";
      joined += delta.text;
    }
  }
  EXPECT_TRUE(stream.Finish().empty());
  EXPECT_EQ(joined, text);
  EXPECT_EQ(Assemble(Bytes("a\xF0\x9F"), {}).content, "a\xF0\x9F");
}

TEST(AnswerStream, GivesContentAtOnce) {
  AnswerStream stream(kChat);
  const std::vector<AnswerDelta> deltas = stream.Push("one\n\n<two");
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0].text, "one\n\n<two");
  EXPECT_EQ(stream.Push(" three\n\n<").at(0).text, " three");
}

TEST(AnswerStream, GivesAValueWhileItIsWritten) {
  AnswerStream stream(kChat);
  stream.Push("\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">");
  const std::vector<AnswerDelta> deltas = stream.Push("line\n");
  ASSERT_EQ(deltas.size(), 1u);
  EXPECT_EQ(deltas[0], (AnswerDelta{AnswerDelta::Kind::kArguments, "line\\n", 0}));
}

}  // namespace
}  // namespace emberkv
