#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include <utility>

#include "weights/test_files.h"

namespace emberkv {
namespace {

using ::testing::Values;

Result<SafetensorsContents> ParseText(const std::string& file) {
  return ParseSafetensors({reinterpret_cast<const uint8_t*>(file.data()), file.size()},
                          "x.safetensors");
}

TEST(Safetensors, GivesNamesTypesShapesAndBytes) {
  const TestFolder folder;
  // Three bytes first leave what follows unaligned.
  folder.Write("a.safetensors",
               SafetensorsBytes({{"odd", "U8", {3}, "abc"},
                                 {"ids", "I32", {1, 2}, std::string("\1\0\0\0\2\1\0\0", 8)},
                                 {"scalar", "BF16", {}, "\x80\x3f"},
                                 {"nothing", "F32", {0, 7}, ""}}));
  Result<SafetensorsFile> opened = SafetensorsFile::Open(folder.File("a.safetensors"));
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  const SafetensorsFile file = std::move(*opened);  // views outlive the move

  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.Find("od"), nullptr);
  EXPECT_EQ(file.Find("oddd"), nullptr);
  EXPECT_TRUE(file.Find("nothing")->bytes.empty());
  EXPECT_EQ(file.Find("scalar")->bytes.size(), 2u);
  const TensorView* ids = file.Find("ids");
  ASSERT_NE(ids, nullptr);
  EXPECT_EQ(ids->dtype, DType::kI32);
  EXPECT_EQ(ids->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(*CopyTensor<int32_t>(*ids, DType::kI32), (std::vector<int32_t>{1, 258}));
  EXPECT_EQ(ids->file_offset, file.Find("odd")->file_offset + 3);
  EXPECT_EQ(file.size_bytes(), file.Find("odd")->file_offset + 3 + 8 + 2);
}

TEST(Safetensors, CopyRefusesAnotherType) {
  const std::string file = SafetensorsBytes({{"a", "I32", {1}, "abcd"}});
  const Result<SafetensorsContents> contents = ParseText(file);
  ASSERT_TRUE(contents.ok());
  const TensorView& tensor = contents->tensors[0];
  EXPECT_EQ(CopyTensor<float>(tensor, DType::kF32).status().message(),
            "tensor 'a' is I32, expected F32");
  EXPECT_EQ(CopyTensor<int64_t>(tensor, DType::kI32).status().code(), StatusCode::kInternal);
}

TEST(Safetensors, KnowsEveryType) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const std::string bytes(DTypeBytes(dtype) * 3, 'x');
    const std::string file = SafetensorsBytes({{"t", DTypeName(dtype), {3}, bytes}});
    const Result<SafetensorsContents> contents = ParseText(file);
    ASSERT_TRUE(contents.ok()) << contents.status().ToString();
    EXPECT_EQ(contents->tensors[0].dtype, dtype);
  }
}

TEST(Safetensors, PaddedHeaderIsAccepted) {
  EXPECT_TRUE(ParseText(RawSafetensors("{}      ", "")).ok());
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* message;
};

std::string Entry(const std::string& fields) { return "{\"t\":{" + fields + "}}"; }
std::string Tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return Entry("\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets);
}
std::string TwoTensors(const char* a_offsets, const char* b_offsets, const char* b_name = "b") {
  const std::string head = R"("dtype":"U8","shape":[4],"data_offsets":)";
  return "{\"a\":{" + head + a_offsets + "},\"" + b_name + "\":{" + head + b_offsets + "}}";
}

std::string CaseName(const ::testing::TestParamInfo<BadFile>& info) { return info.param.name; }

class BadSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithItsReason) {
  const Result<SafetensorsContents> contents = ParseText(GetParam().bytes);
  ASSERT_FALSE(contents.ok());
  const std::string& message = contents.status().message();
  EXPECT_EQ(contents.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(message.rfind("x.safetensors: ", 0), 0u) << message;
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    Length, BadSafetensors,
    Values(BadFile{"Empty", "", "too few"}, BadFile{"SevenBytes", "1234567", "too few"},
           BadFile{"AbsurdLength", std::string(8, '\xff') + "{}", "absurd"},
           BadFile{"JustAbsurdLength", std::string("\1\0\0\x20\0\0\0\0{}", 10), "absurd"},
           BadFile{"PastTheEnd", std::string("\3\0\0\0\0\0\0\0{}", 10), "passes the end"}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Json, BadSafetensors,
    Values(BadFile{"Nothing", RawSafetensors("", ""), "not JSON"},
           BadFile{"NotJson", RawSafetensors("{\"t\":", ""), "not JSON"},
           BadFile{"TextAfter", RawSafetensors("{} x", ""), "not JSON"},
           BadFile{"Array", RawSafetensors("[]", ""), "expected an object"},
           BadFile{"Number", RawSafetensors("1", ""), "expected an object"},
           BadFile{"NotUtf8Name", RawSafetensors("{\"\xff\xfe\":{}}", ""), "not JSON"},
           BadFile{"HugeNumber", RawSafetensors(Tensor("U8", "[1e999]", "[0,1]"), "x"), "not JSON"},
           BadFile{"TensorIsNumber", RawSafetensors("{\"t\":1}", ""), "'t' is the number 1"},
           BadFile{"TensorIsArray", RawSafetensors("{\"t\":[1]}", ""), "'t' is an array"},
           BadFile{"LongName", RawSafetensors("{\"" + std::string(2000, 'n') + "\":{}}", ""),
                   "has 2000 bytes"},
           BadFile{"MetadataNumber", RawSafetensors(R"({"__metadata__":{"k":1}})", ""),
                   "metadata 'k' is the number 1"},
           BadFile{"MetadataTwice", RawSafetensors(R"({"__metadata__":{},"__metadata__":{}})", ""),
                   "appears twice"},
           BadFile{"MetadataKeyTwice", RawSafetensors(R"({"__metadata__":{"k":"1","k":"2"}})", ""),
                   "'k' appears twice"},
           BadFile{"DeeplyNested", RawSafetensors("{\"t\":" + std::string(100000, '['), ""),
                   "'t' is an array"}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Entry, BadSafetensors,
    Values(BadFile{"UnknownType", RawSafetensors(Tensor("F8_E5M9", "[1]", "[0,1]"), "x"),
                   "tensor 't': unknown dtype 'F8_E5M9'"},
           BadFile{"TypeIsNumber",
                   RawSafetensors(Entry(R"("dtype":1,"shape":[1],"data_offsets":[0,1])"), "x"),
                   "tensor 't': unexpected the number 1"},
           BadFile{"NegativeShape", RawSafetensors(Tensor("U8", "[-1]", "[0,1]"), "x"),
                   "shape holds the negative number -1"},
           BadFile{"FractionalShape", RawSafetensors(Tensor("U8", "[1.5]", "[0,1]"), "x"),
                   "shape holds the number 1.5"},
           BadFile{"NestedShape", RawSafetensors(Tensor("U8", "[[1]]", "[0,1]"), "x"),
                   "shape holds an array"},
           BadFile{"HugeDimension",
                   RawSafetensors(Tensor("U8", "[18446744073709551615]", "[0,1]"), "x"),
                   "overflows 64 bits"},
           BadFile{"OverflowingShape",
                   RawSafetensors(Tensor("F32", "[4611686018427387904,2]", "[0,0]"), ""),
                   "overflows 64 bits"},
           BadFile{
               "ManyDimensions",
               RawSafetensors(Tensor("U8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0,1]"), "x"),
               "more than 16 dimensions"},
           BadFile{"NegativeOffset", RawSafetensors(Tensor("U8", "[1]", "[-1,0]"), "x"),
                   "data_offsets hold the negative number -1"},
           BadFile{"OneOffset", RawSafetensors(Tensor("U8", "[1]", "[0]"), "x"), "two numbers"},
           BadFile{"ThreeOffsets", RawSafetensors(Tensor("U8", "[1]", "[0,1,2]"), "x"),
                   "data_offsets hold the number 2"},
           BadFile{"UnknownField", RawSafetensors(Entry(R"("colour":1)"), ""),
                   "unknown field 'colour'"},
           BadFile{"FieldTwice", RawSafetensors(Entry(R"("dtype":"U8","dtype":"U8")"), ""),
                   "field 'dtype' appears twice"},
           BadFile{"FieldMissing", RawSafetensors(Entry(R"("dtype":"U8","shape":[1])"), ""),
                   "data_offsets is missing"}),
    CaseName);

INSTANTIATE_TEST_SUITE_P(
    Data, BadSafetensors,
    Values(BadFile{"Backwards", RawSafetensors(Tensor("U8", "[1]", "[1,0]"), "x"), "run backwards"},
           BadFile{"Truncated", RawSafetensors(Tensor("U8", "[8]", "[0,8]"), "1234567"),
                   "has 7 bytes of data: truncated"},
           BadFile{"SizeMismatch", RawSafetensors(Tensor("F32", "[2]", "[0,4]"), "1234"),
                   "hold 4 bytes; F32 [2] needs 8"},
           BadFile{"Overlap", RawSafetensors(TwoTensors("[0,4]", "[2,6]"), "123456"),
                   "'b': data begins at 2, overlapping the tensor before it"},
           BadFile{"SameBytes", RawSafetensors(TwoTensors("[0,4]", "[0,4]"), "1234"),
                   "overlapping"},
           BadFile{"Hole", RawSafetensors(TwoTensors("[0,4]", "[5,9]"), "123456789"),
                   "'b': data begins at 5, after a hole"},
           BadFile{"HoleAtTheStart", RawSafetensors(Tensor("U8", "[1]", "[1,2]"), "12"),
                   "after a hole"},
           BadFile{"BytesAfter", RawSafetensors(Tensor("U8", "[1]", "[0,1]"), "123"),
                   "2 bytes after the last tensor"},
           BadFile{"NameTwice", RawSafetensors(TwoTensors("[0,4]", "[4,8]", "a"), "12345678"),
                   "tensor 'a' appears twice"}),
    CaseName);

TEST(Safetensors, ControlCharactersStayOutOfMessages) {
  const Result<SafetensorsContents> contents =
      ParseText(RawSafetensors("{\"a\\u001b[2Jb\":1}", ""));
  ASSERT_FALSE(contents.ok());
  EXPECT_NE(contents.status().message().find("'a?[2Jb'"), std::string::npos)
      << contents.status().message();
}

TEST(Safetensors, MissingFileIsNotFound) {
  EXPECT_EQ(SafetensorsFile::Open("/nonexistent/model.safetensors").status().code(),
            StatusCode::kNotFound);
}

}  // namespace
}  // namespace emberkv
