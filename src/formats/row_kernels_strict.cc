// Row encoding, decoding and rounding, compiled once per instruction set (EMBERKV_ISA).
//
// Rows are worked on in blocks of kWidth scale groups, whose scales are one vector. How bits stay
// equal to the reference: dividing by a power of two is multiplying by its inverse, because both
// round the same real number; kGlobalKv divides truly; the product of a code and its scale is the
// one multiplication that the reference does. Never contracted, hence `_strict`.
#include "formats/row_kernels.h"

#include <type_traits>

#include "formats/row_lanes.h"
#include "formats/row_lanes_bf16.h"

namespace emberkv {
namespace EMBERKV_ISA {
namespace {

constexpr uint32_t kMagnitudeMask = 0x7fffffffu;
constexpr uint32_t kInfinityBits = 0x7f800000u;

constexpr uint32_t PowerOfTwoBits(int exponent) {
  return static_cast<uint32_t>(exponent + 127) << 23;
}

struct E4m3 {
  static constexpr int kCodeBits = 8;
  static constexpr int kMantissaBits = 3;
  static constexpr int kMinExponent = -6;            // of a normal value
  static constexpr uint32_t kMaxBits = 0x43e00000u;  // 448
};

struct E2m1 {
  static constexpr int kCodeBits = 4;
  static constexpr int kMantissaBits = 1;
  static constexpr int kMinExponent = 0;
  static constexpr uint32_t kMaxBits = 0x40c00000u;  // 6
};

struct Rounded {
  Floats value;
  Words code;
};

// Nearest element to each magnitude (finite, not negative), ties to even, saturating. Adding a
// power of two whose last place is the element's step at that magnitude rounds; the low bits of the
// sum then count steps. Even counts are even codes.
template <class Element>
EMBERKV_INLINE Rounded RoundMagnitude(Floats magnitude) {
  constexpr int kDroppedBits = 23 - Element::kMantissaBits;
  constexpr uint32_t kMinExponentBits = PowerOfTwoBits(Element::kMinExponent);
  const Words bits = MinBits(ToBits(magnitude), FillBits(Element::kMaxBits));
  const Words exponent = MaxBits(bits & kInfinityBits, FillBits(kMinExponentBits));
  const Words magic = exponent + (static_cast<uint32_t>(kDroppedBits) << 23);
  const Floats sum = ToFloats(bits) + ToFloats(magic);
  const Words steps = ToBits(sum) - magic;
  return {sum - ToFloats(magic),
          steps + (exponent >> kDroppedBits) - (kMinExponentBits >> kDroppedBits)};
}

// Scales of 16 groups: their codes, their values, and what Quotient takes for them.
struct Scales {
  Words codes;
  Floats values;
  Floats divisors;
};

// The smallest power of two >= t, for normal t up to 2^126.
EMBERKV_INLINE Scales PowerOfTwoScales(Floats t) {
  const Words codes = (ToBits(t) + 0x7fffffu) >> 23;
  return {codes, ToFloats(codes << 23), ToFloats((254u - codes) << 23)};
}

// e8m0 codes: 0 is the subnormal 2^-127, 255 is NaN; both have the top mantissa bit set.
EMBERKV_INLINE Floats E8m0Values(Words codes) {
  return ToFloats((codes << 23) | ((Equal(codes, 0) | Equal(codes, 255)) & 0x00400000u));
}

// The formats. `amax` is the largest magnitude of each group; Quotient is |x| / scale.
struct WindowKv {
  using Element = E4m3;
  static constexpr int kGroup = 32;
  static constexpr bool kDivides = false;
  EMBERKV_INLINE Scales ScalesFor(Words amax) {
    constexpr uint32_t kFloorBits = 0x38d1b717u;  // 1e-4f
    return PowerOfTwoScales(ToFloats(MaxBits(amax, FillBits(kFloorBits))) * Fill(1.0f / 448.0f));
  }
  EMBERKV_INLINE Floats ScaleValues(const uint8_t* codes) { return E8m0Values(LoadBytes(codes)); }
};

struct IndexKey {
  using Element = E2m1;
  static constexpr int kGroup = 32;
  static constexpr bool kDivides = false;
  EMBERKV_INLINE Scales ScalesFor(Words amax) {
    constexpr uint32_t kFloorBits = 0x01c00000u;  // 6 * 2^-126
    return PowerOfTwoScales(ToFloats(MaxBits(amax, FillBits(kFloorBits))) * Fill(1.0f / 6.0f));
  }
  EMBERKV_INLINE Floats ScaleValues(const uint8_t* codes) { return E8m0Values(LoadBytes(codes)); }
};

struct GlobalKv {
  using Element = E2m1;
  static constexpr int kGroup = 16;
  static constexpr bool kDivides = true;
  EMBERKV_INLINE Scales ScalesFor(Words amax) {
    constexpr uint32_t kFloorBits = 0x3c400000u;  // 6 * 2^-9
    const Rounded scale =
        RoundMagnitude<E4m3>(ToFloats(MaxBits(amax, FillBits(kFloorBits))) / Fill(6.0f));
    return {scale.code, scale.value, scale.value};
  }
  EMBERKV_INLINE Floats ScaleValues(const uint8_t* codes) {
    const Words nan = Equal(LoadBytes(codes) & 0x7fu, 0x7f) & 0x7fc00000u;
    return ToFloats(ToBits(LoadScaledE4m3(codes) * Fill(0x1p120f)) | nan);
  }
};

template <class Format>
EMBERKV_INLINE Floats Quotient(Floats magnitude, float divisor) {
  return Format::kDivides ? magnitude / Fill(divisor) : magnitude * Fill(divisor);
}

template <class Format>
constexpr int CodeBytes(int channels) {
  return channels * Format::Element::kCodeBits / 8;
}

EMBERKV_INLINE int BlockGroups(int groups_left) {
  return groups_left < kWidth ? groups_left : kWidth;
}

// Lane g is the largest magnitude of group g, as bits; 0 from `groups` on.
template <class Format, class Value>
EMBERKV_INLINE Words GroupMaxima(const Value* x, int groups) {
  Words maxima[kWidth];
#pragma GCC unroll 16
  for (int g = 0; g < kWidth; ++g) {
    maxima[g] = Words{};
    if (g >= groups) continue;
    for (int i = 0; i < Format::kGroup; i += kWidth) {
      const Words bits = ToBits(LoadFloats(x + g * Format::kGroup + i)) & kMagnitudeMask;
      maxima[g] = i == 0 ? bits : MaxBits(maxima[g], bits);
    }
  }
#pragma GCC unroll 4
  for (int width = kWidth / 2; width >= 1; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) maxima[i] = PairMax(maxima[2 * i], maxima[2 * i + 1]);
  }
  return maxima[0];
}

// Whether all magnitudes, given as bits, are finite.
EMBERKV_INLINE bool AllFinite(Words bits) {
  uint32_t lanes[kWidth];
  std::memcpy(lanes, &bits, sizeof lanes);
  uint32_t max = 0;
  for (int i = 0; i < kWidth; ++i) max = lanes[i] > max ? lanes[i] : max;
  return max < kInfinityBits;
}

template <class Format>
EMBERKV_INLINE Words EncodeLanes(Floats x, float divisor) {
  constexpr int kSignShift = 32 - Format::Element::kCodeBits;
  const Words bits = ToBits(x);
  const Floats quotient = Quotient<Format>(ToFloats(bits & kMagnitudeMask), divisor);
  return RoundMagnitude<typename Format::Element>(quotient).code |
         ((bits & ~kMagnitudeMask) >> kSignShift);
}

template <class Format, class Value>
EMBERKV_INLINE void EncodeGroup(const Value* x, float divisor, uint8_t* codes) {
  for (int i = 0; i < Format::kGroup; i += kWidth) {
    const Words lanes = EncodeLanes<Format>(LoadFloats(x + i), divisor);
    if (Format::Element::kCodeBits == 8) {
      StoreBytes(lanes, codes + i);
    } else {
      StoreNibbles(lanes, codes + i / 2);
    }
  }
}

// Stores the scale codes of `n` groups and gives back their divisors.
EMBERKV_INLINE void StoreScales(const Scales& scales, int n, uint8_t* codes, float (&divisors)[kWidth]) {
  uint8_t all[kWidth];
  StoreBytes(scales.codes, all);
  StoreLanes(scales.divisors, divisors);
  std::memcpy(codes, all, static_cast<size_t>(n));
}

// Packs blocks of kWidth groups from group `begin` to the last; -> the largest magnitudes seen.
template <class Format, class Value>
EMBERKV_INLINE Words EncodeBlocks(const Value* x, int begin, int groups, uint8_t* codes,
                                  uint8_t* scale_codes) {
  Words largest = {};
  for (; begin < groups; begin += kWidth) {
    const int n = BlockGroups(groups - begin);
    const Value* const block = x + begin * Format::kGroup;
    const Words amax = GroupMaxima<Format>(block, n);
    largest = MaxBits(largest, amax);
    float divisors[kWidth];
    StoreScales(Format::ScalesFor(amax), n, scale_codes + begin, divisors);
    for (int g = 0; g < n; ++g) {
      const int channel = g * Format::kGroup;
      EncodeGroup<Format>(block + channel, divisors[g],
                          codes + CodeBytes<Format>(begin * Format::kGroup + channel));
    }
  }
  return largest;
}

#if defined(__AVX512F__)
// Packs runs of 512 bf16 channels; -> the number of groups that are done.
EMBERKV_INLINE int EncodeGlobalRuns(const uint16_t* x, int groups, uint8_t* codes, uint8_t* scale_codes,
                                    Words* largest) {
  constexpr int kRunGroups = 2 * kWidth;
  int begin = 0;
  for (; begin + kRunGroups <= groups; begin += kRunGroups) {
    const uint16_t* const run = x + begin * GlobalKv::kGroup;
    Words first, second;
    RunMaxima(run, &first, &second);
    *largest = MaxBits(*largest, MaxBits(first, second));
    float scales[2][kWidth];
    StoreScales(GlobalKv::ScalesFor(first), kWidth, scale_codes + begin, scales[0]);
    StoreScales(GlobalKv::ScalesFor(second), kWidth, scale_codes + begin + kWidth, scales[1]);
    uint8_t* const run_codes = codes + CodeBytes<GlobalKv>(begin * GlobalKv::kGroup);
#pragma GCC unroll 4
    for (int g = 0; g < kRunGroups; g += 2) {
      const float* const pair = scales[g / kWidth] + g % kWidth;
      EncodeE2m1Pair(run + g * GlobalKv::kGroup, pair[0], pair[1],
                     run_codes + CodeBytes<GlobalKv>(g * GlobalKv::kGroup));
    }
  }
  return begin;
}
#endif

template <class Format, class Value>
bool EncodeRow(const Value* x, int channels, uint8_t* row) {
  const int groups = channels / Format::kGroup;
  uint8_t* const scale_codes = row + CodeBytes<Format>(channels);
  Words largest = {};
  int begin = 0;
#if defined(__AVX512F__)
  if constexpr (Format::kGroup == GlobalKv::kGroup && sizeof(Value) == 2) {
    begin = EncodeGlobalRuns(x, groups, row, scale_codes, &largest);
  }
#endif
  return AllFinite(MaxBits(largest, EncodeBlocks<Format>(x, begin, groups, row, scale_codes)));
}

template <class Format, class Value>
bool EncodeRows(const Value* x, size_t x_stride, int num_rows, int channels, uint8_t* rows,
                size_t row_stride) {
  for (int r = 0; r < num_rows; ++r) {
    if (!EncodeRow<Format>(x, channels, rows)) return false;
    x += x_stride;
    rows += row_stride;
  }
  return true;
}

template <class Format>
void RoundRow(float* x, int channels) {
  const int groups = channels / Format::kGroup;
  for (int begin = 0; begin < groups; begin += kWidth) {
    const int n = BlockGroups(groups - begin);
    float* const block = x + begin * Format::kGroup;
    const Scales scales = Format::ScalesFor(GroupMaxima<Format>(block, n));
    float values[kWidth], divisors[kWidth];
    StoreLanes(scales.values, values);
    StoreLanes(scales.divisors, divisors);
    for (int g = 0; g < n; ++g) {
      for (int i = 0; i < Format::kGroup; i += kWidth) {
        float* const p = block + g * Format::kGroup + i;
        const Words bits = ToBits(LoadFloats(p));
        const Floats quotient = Quotient<Format>(ToFloats(bits & kMagnitudeMask), divisors[g]);
        const Floats value =
            RoundMagnitude<typename Format::Element>(quotient).value * Fill(values[g]);
        StoreFloats(ToFloats(ToBits(value) | (bits & ~kMagnitudeMask)), p);
      }
    }
  }
}

template <class Format>
void RoundRows(float* x, size_t x_stride, int num_rows, int channels) {
  for (int r = 0; r < num_rows; ++r) RoundRow<Format>(x + r * x_stride, channels);
}

// Scales of the `n` groups at `codes`, ordinary values behind them: a row may end there.
template <class Format>
EMBERKV_INLINE Floats LoadScales(const uint8_t* codes, int n) {
  if (n == kWidth) return Format::ScaleValues(codes);
  uint8_t padded[kWidth];
  std::memset(padded, 127, sizeof padded);
  std::memcpy(padded, codes, static_cast<size_t>(n));
  return Format::ScaleValues(padded);
}

template <class Format>
EMBERKV_INLINE void DecodeE2m1Block(const uint8_t* codes, Floats scales, int groups, float* out) {
  float values[kWidth];
  StoreLanes(scales, values);
  for (int g = 0; g < groups; ++g) {
    const Floats scale = Fill(values[g]);
    for (int i = 0; i < Format::kGroup; i += kWidth) {
      StoreFloats(LoadE2m1(codes) * scale, out);
      codes += kWidth / 2;
      out += kWidth;
    }
  }
}

// Products of e2m1 codes and their scales are exact in bf16.
template <class Format>
EMBERKV_INLINE void DecodeE2m1Block(const uint8_t* codes, Floats scales, int groups, uint32_t* pairs) {
  float values[kWidth];
  StoreLanes(scales, values);
  for (int g = 0; g < groups; ++g) {
    const Floats scale = Fill(values[g]);
    for (int i = 0; i < Format::kGroup; i += 2 * kWidth) {
      StoreBf16Pairs(LoadE2m1(codes) * scale, LoadE2m1(codes + kWidth / 2) * scale, pairs);
      codes += kWidth;
      pairs += kWidth;
    }
  }
}

// Values of `channels` channels in an array of floats or of bf16 pairs.
EMBERKV_INLINE float* At(float* out, int channels) { return out + channels; }
EMBERKV_INLINE uint32_t* At(uint32_t* pairs, int channels) { return pairs + channels / 2; }

template <class Format, class Value>
void DecodeE2m1Row(const uint8_t* row, int channels, Value* out) {
  const int groups = channels / Format::kGroup;
  const uint8_t* const scale_codes = row + CodeBytes<Format>(channels);
#if defined(__AVX512F__)
  if constexpr (Format::kGroup == GlobalKv::kGroup && std::is_same_v<Value, uint32_t>) {
    for (int g = 0; g < groups; g += 2) {
      DecodeE2m1Pair(row + g * 8, scale_codes + g, out + g * GlobalKv::kGroup / 2);
    }
    return;
  }
#endif
  for (int begin = 0; begin < groups; begin += kWidth) {
    const int n = BlockGroups(groups - begin);
    const Floats scales = LoadScales<Format>(scale_codes + begin, n);
    const int channel = begin * Format::kGroup;
    // Full blocks have a constant number of groups, so that their loop is unrolled.
    if (n == kWidth) {
      DecodeE2m1Block<Format>(row + channel / 2, scales, kWidth, At(out, channel));
    } else {
      DecodeE2m1Block<Format>(row + channel / 2, scales, n, At(out, channel));
    }
  }
}

// Two vectors to where floats or bf16 pairs are wanted; in bf16 they are exact.
EMBERKV_INLINE void StorePair(Floats a, Floats b, float* p) {
  StoreFloats(a, p);
  StoreFloats(b, p + kWidth);
}
EMBERKV_INLINE void StorePair(Floats a, Floats b, uint32_t* p) { StoreBf16Pairs(a, b, p); }

// Non-zero in the lanes whose e8m0 scale is above 2^7, below 2^-100 or NaN, and so not ordinary.
EMBERKV_INLINE Words Unordinary(Floats scales) {
  return ((PowerOfTwoBits(7) - ToBits(scales)) | (ToBits(scales) - PowerOfTwoBits(-100))) & 0x80000000u;
}

// One block of e4m3 codes with ordinary scales and no NaN: LoadScaledE4m3's factor of 2^120 goes
// into the scale.
template <class Value>
EMBERKV_INLINE void DecodeOrdinaryBlock(const uint8_t* codes, Floats scales, int groups, Value* out) {
  float folded[kWidth];
  StoreLanes(scales * Fill(0x1p120f), folded);
  for (int g = 0; g < groups; ++g) {
    const Floats scale = Fill(folded[g]);
    for (int i = 0; i < WindowKv::kGroup; i += 2 * kWidth) {
      StorePair(LoadScaledE4m3(codes) * scale, LoadScaledE4m3(codes + kWidth) * scale, out);
      codes += 2 * kWidth;
      out = At(out, 2 * kWidth);
    }
  }
}

template <class Value>
void DecodeAnyBlock(const uint8_t* codes, Floats scales, int groups, Value* out) {
  float values[kWidth];
  StoreLanes(scales, values);
  const auto value_at = [&](int i) {
    const Floats element = GlobalKv::ScaleValues(codes + i);  // e4m3 with NaN, as a scale is
    const Floats value = element * Fill(values[i / WindowKv::kGroup]);
    return std::is_same_v<Value, uint32_t> ? RoundToBf16Lanes(value) : value;
  };
  for (int i = 0; i < groups * WindowKv::kGroup; i += 2 * kWidth) {
    StorePair(value_at(i), value_at(i + kWidth), At(out, i));
  }
}

template <class Value>
void DecodeWindowRow(const uint8_t* row, int channels, Value* out) {
  const int groups = channels / WindowKv::kGroup;
  const uint8_t* const scale_codes = row + channels;
  for (int begin = 0; begin < groups; begin += kWidth) {
    const int n = BlockGroups(groups - begin);
    const int channel = begin * WindowKv::kGroup;
    const Floats scales = LoadScales<WindowKv>(scale_codes + begin, n);
    if (AnyBit(Unordinary(scales) | E4m3Nans(row + channel, n * WindowKv::kGroup))) {
      DecodeAnyBlock(row + channel, scales, n, At(out, channel));
    } else if (n == kWidth) {
      DecodeOrdinaryBlock(row + channel, scales, kWidth, At(out, channel));
    } else {
      DecodeOrdinaryBlock(row + channel, scales, n, At(out, channel));
    }
  }
}

}  // namespace

const RowKernels kRowKernels = {
    {EncodeRows<GlobalKv, float>, EncodeRows<IndexKey, float>, EncodeRows<WindowKv, float>},
    {EncodeRows<GlobalKv, uint16_t>, EncodeRows<IndexKey, uint16_t>, EncodeRows<WindowKv, uint16_t>},
    {DecodeE2m1Row<GlobalKv, float>, DecodeE2m1Row<IndexKey, float>, DecodeWindowRow<float>},
    {DecodeE2m1Row<GlobalKv, uint32_t>, DecodeE2m1Row<IndexKey, uint32_t>, DecodeWindowRow<uint32_t>},
    {RoundRows<GlobalKv>, RoundRows<IndexKey>, RoundRows<WindowKv>},
};

}  // namespace EMBERKV_ISA
}  // namespace emberkv
