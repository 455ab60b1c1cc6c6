// Element formats and row codecs against the official inference code's own results, bit for bit
// (tests/data/golden/README.md, section 3: ops/formats and ops/quant).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/isa.h"
#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "formats/row_codec.h"
#include "formats/row_codec_reference.h"
#include "weights/safetensors.h"

namespace emberkv {
namespace {

SafetensorsFile OpenGolden(const std::string& name) {
  Result<SafetensorsFile> file =
      SafetensorsFile::Open(std::string(EMBERKV_TEST_DATA) + "/golden/ops/" + name);
  if (!file.ok()) throw std::runtime_error(file.status().ToString());
  return std::move(file).value();
}

template <class T>
std::vector<T> Values(const SafetensorsFile& file, const std::string& name, DType dtype) {
  const TensorView* tensor = file.Find(name);
  if (tensor == nullptr) throw std::runtime_error("no tensor " + name);
  Result<std::vector<T>> values = CopyTensor<T>(*tensor, dtype);
  if (!values.ok()) throw std::runtime_error(values.status().ToString());
  return std::move(values).value();
}

bool SameBits(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

void CheckDecode(const std::string& element, size_t num_codes,
                 const std::function<float(uint8_t)>& decode) {
  const SafetensorsFile file = OpenGolden("formats.safetensors");
  const auto want = Values<float>(file, element + ".decode", DType::kF32);
  ASSERT_EQ(want.size(), num_codes);
  for (size_t code = 0; code < want.size(); ++code) {
    const float got = decode(static_cast<uint8_t>(code));
    EXPECT_TRUE(SameBits(got, want[code])) << code << ": " << got << ", not " << want[code];
  }
}

void CheckEncode(const std::string& element, const std::function<uint8_t(float)>& encode) {
  const SafetensorsFile file = OpenGolden("formats.safetensors");
  const auto in = Values<float>(file, element + ".encode_in", DType::kF32);
  const auto want = Values<uint8_t>(file, element + ".encode_code", DType::kU8);
  ASSERT_EQ(in.size(), want.size());
  ASSERT_FALSE(in.empty());
  for (size_t i = 0; i < in.size(); ++i) EXPECT_EQ(encode(in[i]), want[i]) << "value " << in[i];
}

TEST(FormatsGolden, E2m1) {
  CheckDecode("e2m1", 16, E2m1ToFloat);
  CheckEncode("e2m1", FloatToE2m1);
}

TEST(FormatsGolden, E4m3) {
  CheckDecode("e4m3", 256, E4m3ToFloat);
  CheckEncode("e4m3", FloatToE4m3);
}

TEST(FormatsGolden, E8m0) { CheckDecode("e8m0", 256, E8m0ToFloat); }

constexpr int kChannels = 64;

// One of the three quantisers of quant.safetensors.
struct QuantCase {
  RowFormat format;
  std::string prefix;
  std::string scale;
};

class QuantGolden : public testing::TestWithParam<QuantCase> {
 protected:
  void SetUp() override {
    const QuantCase& param = GetParam();
    const SafetensorsFile file = OpenGolden("quant.safetensors");
    for (uint16_t bits : Values<uint16_t>(file, param.prefix + ".x", DType::kBF16)) {
      x_.push_back(Bf16ToFloat(bits));
    }
    for (uint16_t bits : Values<uint16_t>(file, param.prefix + ".dq", DType::kBF16)) {
      rounded_.push_back(Bf16ToFloat(bits));
    }
    num_rows_ = static_cast<int>(x_.size() / kChannels);
    ASSERT_GT(num_rows_, 100);
    ASSERT_EQ(rounded_.size(), x_.size());
    // A packed row is all its codes, then all its scales.
    const auto codes = Values<uint8_t>(file, param.prefix + ".codes", DType::kU8);
    const auto scales = Values<uint8_t>(file, param.prefix + param.scale, DType::kU8);
    const size_t num_rows = static_cast<size_t>(num_rows_);
    ASSERT_EQ(codes.size() + scales.size(), num_rows * row_bytes_);
    for (size_t r = 0; r < num_rows; ++r) {
      const size_t num_codes = codes.size() / num_rows, num_scales = scales.size() / num_rows;
      rows_.insert(rows_.end(), &codes[r * num_codes], &codes[r * num_codes] + num_codes);
      rows_.insert(rows_.end(), &scales[r * num_scales], &scales[r * num_scales] + num_scales);
    }
  }

  void ExpectRounded(const std::vector<float>& got) const {
    ASSERT_EQ(got.size(), rounded_.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(SameBits(got[i], rounded_[i]))
          << "row " << i / kChannels << ", channel " << i % kChannels << ": " << got[i] << ", not "
          << rounded_[i];
    }
  }

  const RowFormat format_ = GetParam().format;
  const size_t row_bytes_ = RowBytes(format_, kChannels);
  int num_rows_ = 0;
  std::vector<float> x_;
  std::vector<float> rounded_;
  std::vector<uint8_t> rows_;
};

TEST_P(QuantGolden, EveryIsaEncodesDecodesAndRounds) {
  for (Isa isa : SupportedIsas()) {
    SCOPED_TRACE(IsaName(isa));
    const ScopedIsa scoped(isa);
    std::vector<uint8_t> rows(rows_.size());
    ASSERT_TRUE(
        EncodeRows(format_, x_.data(), kChannels, num_rows_, kChannels, rows.data(), row_bytes_));
    EXPECT_EQ(rows, rows_);
    std::vector<float> decoded(x_.size());
    for (size_t r = 0; r < static_cast<size_t>(num_rows_); ++r) {
      DecodeRow(format_, &rows_[r * row_bytes_], kChannels, &decoded[r * kChannels]);
    }
    ExpectRounded(decoded);
    std::vector<float> rounded = x_;
    RoundRows(format_, rounded.data(), kChannels, num_rows_, kChannels);
    ExpectRounded(rounded);
  }
}

TEST_P(QuantGolden, ReferenceEncodesDecodesAndRounds) {
  std::vector<uint8_t> rows(rows_.size());
  ASSERT_TRUE(reference::EncodeRows(format_, x_.data(), kChannels, num_rows_, kChannels,
                                    rows.data(), row_bytes_));
  EXPECT_EQ(rows, rows_);
  std::vector<float> decoded(x_.size());
  for (size_t r = 0; r < static_cast<size_t>(num_rows_); ++r) {
    reference::DecodeRow(format_, &rows_[r * row_bytes_], kChannels, &decoded[r * kChannels]);
  }
  ExpectRounded(decoded);
  std::vector<float> rounded = x_;
  reference::RoundRows(format_, rounded.data(), kChannels, num_rows_, kChannels);
  ExpectRounded(rounded);
}

std::string CaseName(const testing::TestParamInfo<QuantCase>& info) {
  return RowFormatName(info.param.format);
}

INSTANTIATE_TEST_SUITE_P(AllFormats, QuantGolden,
                         testing::Values(QuantCase{RowFormat::kWindowKv, "fp8_g32", ".scale_e8m0"},
                                         QuantCase{RowFormat::kGlobalKv, "fp4_g16_e4m3", ".scale"},
                                         QuantCase{RowFormat::kIndexKey, "fp4_g32_e8m0", ".scale"}),
                         CaseName);

}  // namespace
}  // namespace emberkv
