#include "prompt/python_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace emberkv {
namespace {

using ::testing::HasSubstr;

std::string Rewritten(const std::string& text) {
  const Result<nlohmann::ordered_json> value = ParseJson(text);
  return value.ok() ? *PythonJson(*value) : value.status().ToString();
}

TEST(PythonJson, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(Rewritten("[1e-7, 1E+30, -1.50, 2.0, -0.0, 0.0001, 0.00001, 1e15, 1e16, 1.5e300]"),
            "[1e-07, 1e+30, -1.5, 2.0, -0.0, 0.0001, 1e-05, 1000000000000000.0, 1e+16, 1.5e+300]");
  EXPECT_EQ(Rewritten("[0.1, 123456.789, 18446744073709551615, -9223372036854775808, -0]"),
            "[0.1, 123456.789, 18446744073709551615, -9223372036854775808, 0]");
}

TEST(PythonJson, KeepsKeyOrderAndPythonsSeparators) {
  EXPECT_EQ(Rewritten(R"({"b":[1,true,null],"a":{},"c":[]})"),
            R"({"b": [1, true, null], "a": {}, "c": []})");
  EXPECT_EQ(Rewritten(R"({"a":1,"b":2,"a":3})"), R"({"a": 3, "b": 2})");
}

TEST(PythonJson, EscapesOnlyWhatItMust) {
  EXPECT_EQ(Rewritten(R"(["\u00e9\ud83d\ude00 \/ \u007f", "\u0001\u001f\b\f\n\r\t\"\\"])"),
            "[\"é😀 / \x7f\", \"\\u0001\\u001f\\b\\f\\n\\r\\t\\\"\\\\\"]");
}

TEST(ParseJson, RefusesWhatIsNotJson) {
  for (const char* text : {"", "{", "[1,]", "NaN", "1e400", "\"\\ud83d\"", "\"\xff\"", "1 2"}) {
    EXPECT_EQ(ParseJson(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

TEST(ParseJson, RefusesIntegersItWouldRound) {
  const Result<nlohmann::ordered_json> value = ParseJson("[18446744073709551616]");
  EXPECT_EQ(value.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(value.status().message(), HasSubstr("18446744073709551616"));
}

TEST(ParseJson, BoundsDepth) {
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_EQ(Rewritten(nested(kMaxJsonDepth)), nested(kMaxJsonDepth));
  EXPECT_EQ(ParseJson(nested(kMaxJsonDepth + 1)).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(ParseJson(std::string(1 << 20, '[')).status().code(), StatusCode::kResourceExhausted);
}

TEST(ParseJson, BoundsTheFieldsOfAnObject) {
  const auto object = [](size_t fields) {
    std::string text = "{";
    for (size_t i = 0; i < fields; ++i) {
      text += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{\"x\":0}";
    }
    return text + "}";
  };
  EXPECT_TRUE(ParseJson(object(kMaxJsonFields)).ok());
  EXPECT_EQ(ParseJson(object(kMaxJsonFields + 1)).status().code(), StatusCode::kResourceExhausted);
}

TEST(PythonJson, BoundsTheDepthOfAValueThatWasNotParsed) {
  nlohmann::ordered_json value = 1;
  for (int i = 0; i <= kMaxJsonDepth; ++i) {
    nlohmann::ordered_json outer = nlohmann::ordered_json::array();
    outer.push_back(std::move(value));
    value = std::move(outer);
  }
  EXPECT_EQ(PythonJson(value).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(PythonJson(value[0]).ok());
}

}  // namespace
}  // namespace emberkv
