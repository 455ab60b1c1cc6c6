#include "formats/row_codec_reference.h"

#include <algorithm>
#include <cmath>

#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"

namespace emberkv::reference {
namespace {

// The scale code of a group whose largest magnitude is `amax`.
uint8_t ScaleCode(RowFormat format, float amax) {
  switch (format) {
    case RowFormat::kGlobalKv:
      return FloatToE4m3(std::max(amax, 6.0f * 0x1p-9f) / 6.0f);
    case RowFormat::kIndexKey:
      return CeilToE8m0(std::max(amax, 6.0f * 0x1p-126f) * (1.0f / 6.0f));
    case RowFormat::kWindowKv:
      return CeilToE8m0(std::max(amax, 1e-4f) * (1.0f / 448.0f));
  }
  return 0;
}

float ScaleValue(RowFormat format, uint8_t code) {
  return format == RowFormat::kGlobalKv ? E4m3ToFloat(code) : E8m0ToFloat(code);
}

// Codes of one group: one element per byte, and the scale.
uint8_t EncodeGroup(RowFormat format, const float* x, uint8_t* codes) {
  const int group = ScaleGroup(format);
  float amax = 0.0f;
  for (int i = 0; i < group; ++i) amax = std::max(amax, std::fabs(x[i]));
  const uint8_t scale_code = ScaleCode(format, amax);
  const float scale = ScaleValue(format, scale_code);
  for (int i = 0; i < group; ++i) {
    const float v = x[i] / scale;  // both conversions saturate, which is the clamp
    codes[i] = format == RowFormat::kWindowKv ? FloatToE4m3(v) : FloatToE2m1(v);
  }
  return scale_code;
}

float ElementValue(RowFormat format, uint8_t code) {
  return format == RowFormat::kWindowKv ? E4m3ToFloat(code) : E2m1ToFloat(code);
}

bool EncodeRow(RowFormat format, const float* x, int channels, uint8_t* row) {
  if (!std::all_of(x, x + channels, [](float v) { return std::isfinite(v); })) return false;
  const int group = ScaleGroup(format);
  const bool packs_nibbles = format != RowFormat::kWindowKv;
  uint8_t* const scales = row + (packs_nibbles ? channels / 2 : channels);
  for (int begin = 0; begin < channels; begin += group) {
    uint8_t codes[32];
    scales[begin / group] = EncodeGroup(format, x + begin, codes);
    for (int i = 0; i < group; ++i) {
      const int channel = begin + i;
      if (!packs_nibbles) {
        row[channel] = codes[i];
      } else if (i % 2 == 1) {
        row[channel / 2] = static_cast<uint8_t>(codes[i - 1] | (codes[i] << 4));
      }
    }
  }
  return true;
}

}  // namespace

bool EncodeRows(RowFormat format, const float* x, size_t x_stride, int num_rows, int channels,
                uint8_t* rows, size_t row_stride) {
  for (int r = 0; r < num_rows; ++r) {
    if (!EncodeRow(format, x + r * x_stride, channels, rows + r * row_stride)) return false;
  }
  return true;
}

void DecodeRow(RowFormat format, const uint8_t* row, int channels, float* out) {
  const bool packs_nibbles = format != RowFormat::kWindowKv;
  const uint8_t* const scales = row + (packs_nibbles ? channels / 2 : channels);
  for (int c = 0; c < channels; ++c) {
    const int byte = row[packs_nibbles ? c / 2 : c];
    int code = byte;
    if (packs_nibbles) code = c % 2 == 0 ? byte & 15 : byte >> 4;
    out[c] = ElementValue(format, static_cast<uint8_t>(code)) *
             ScaleValue(format, scales[c / ScaleGroup(format)]);
  }
}

void RoundRows(RowFormat format, float* x, size_t x_stride, int num_rows, int channels) {
  const int group = ScaleGroup(format);
  for (int r = 0; r < num_rows; ++r) {
    for (int begin = 0; begin < channels; begin += group) {
      float* const p = x + r * x_stride + begin;
      uint8_t codes[32];
      const float scale = ScaleValue(format, EncodeGroup(format, p, codes));
      for (int i = 0; i < group; ++i) p[i] = ElementValue(format, codes[i]) * scale;
    }
  }
}

}  // namespace emberkv::reference
