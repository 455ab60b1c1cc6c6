// Layer by layer against the official trace, each layer fed with the trace's own input (golden README 4
// and 8.2): the strictest test of the model as a whole. Then the packed cache bytes (8.7).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "formats/row_codec.h"
#include "golden_data.h"

namespace emberkv {
namespace {

using golden::File;
using golden::Sequence;
using golden::TinyModel;

struct Limits {
  const char* model;
  double rows_equal;
  double worst_error;
};

class TeacherForced : public ::testing::TestWithParam<Limits> {};

TEST_P(TeacherForced, EveryLayerMatchesTheTrace) {
  const TinyModel& tiny = golden::Tiny(GetParam().model);
  const File trace(tiny.name + "/trace_golden.safetensors");
  const std::vector<int64_t> ids = trace.Ints("tokens");
  Sequence sequence(tiny, {ids.begin(), ids.end()});
  ThreadPool pool(2);
  Step step(&pool);
  step.spans = {{sequence.state(), 0, static_cast<int64_t>(ids.size()), true}};
  ASSERT_TRUE(tiny.model->Begin(&step).ok());
  const size_t width = static_cast<size_t>(tiny.config.hc_mult * tiny.config.hidden_size);
  for (int layer = 0; layer < tiny.layout.num_layers(); ++layer) {
    const std::string prefix = "L" + std::to_string(layer) + ".";
    const Status status = tiny.model->RunLayer(layer, &step);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::vector<float> want = trace.Floats(prefix + "stream_out_all_rows");
    const std::vector<float> want_pre = trace.Floats(prefix + "pre_out_all_rows");
    ASSERT_EQ(step.stream.size(), want.size());
    size_t equal = 0;
    for (size_t r = 0; r < ids.size(); ++r) {
      equal += std::memcmp(&step.stream[r * width], &want[r * width], width * sizeof(float)) == 0 ? 1 : 0;
    }
    const double share = static_cast<double>(equal) / static_cast<double>(ids.size());
    const double worst = golden::WorstRowError(step.stream, want, width);
    EXPECT_GE(share, GetParam().rows_equal) << "layer " << layer;
    EXPECT_LE(worst, GetParam().worst_error) << "layer " << layer;
    EXPECT_LE(golden::Compare(step.pre, want_pre).max, GetParam().worst_error) << "layer " << layer;
    printf("%s layer %d: %.1f %% of rows bit-equal, worst row error %.5f\n", tiny.name.c_str(), layer,
           100 * share, worst);
    step.stream = want;
    step.pre = want_pre;
  }
  tiny.model->Finish(&step);
  const golden::Difference d = golden::Compare(step.logits, trace.Floats("logits_last"));
  EXPECT_LE(d.max, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Golden, TeacherForced,
                         ::testing::Values(Limits{"tiny-random", 0.90, 0.005},
                                           Limits{"tiny-wide", 0.70, 0.05}));

// Golden packed rows: codes and scales apart, as the data keeps them; [rows][codes | scales].
std::vector<std::vector<uint8_t>> JoinRows(const std::vector<uint8_t>& codes,
                                           const std::vector<uint8_t>& scales, size_t rows) {
  std::vector<std::vector<uint8_t>> out(rows);
  for (size_t r = 0; r < rows; ++r) {
    for (const std::vector<uint8_t>* part : {&codes, &scales}) {
      const size_t width = part->size() / rows;
      out[r].insert(out[r].end(), part->begin() + static_cast<int64_t>(r * width),
                    part->begin() + static_cast<int64_t>((r + 1) * width));
    }
  }
  return out;
}

struct RowMatch {
  double bytes_equal = 0;
  double relative_error = 0;  // of the dequantized rows together
};

template <class Row>
RowMatch MatchRows(RowFormat format, int channels, const std::vector<std::vector<uint8_t>>& want,
                   Row row) {
  size_t equal = 0, total = 0;
  double error = 0, norm = 0;
  std::vector<float> a(static_cast<size_t>(channels)), b(a.size());
  for (size_t r = 0; r < want.size(); ++r) {
    const std::vector<uint8_t> got = row(static_cast<int64_t>(r));
    EXPECT_EQ(got.size(), want[r].size());
    for (size_t i = 0; i < got.size(); ++i) equal += got[i] == want[r][i] ? 1 : 0;
    total += got.size();
    DecodeRow(format, got.data(), channels, a.data());
    DecodeRow(format, want[r].data(), channels, b.data());
    for (size_t c = 0; c < a.size(); ++c) {
      error += (double{a[c]} - b[c]) * (double{a[c]} - b[c]);
      norm += double{b[c]} * b[c];
    }
  }
  return {static_cast<double>(equal) / static_cast<double>(total), std::sqrt(error / norm)};
}

// After prefills of 3, 129 and 300 tokens. Near the input bytes are noise-free; deeper, one flipped
// code upstream changes many, so dequantized rows are compared (golden README 5; the teacher-forced
// test judges those layers). tiny-wide cuts its attention list differently below 128 tokens than this
// engine, which has one cut for all lengths, so its bytes are exact up to the first such layer only.
class CacheBytes : public ::testing::TestWithParam<const char*> {
 protected:
  void Check(const std::string& what, int layer, int n, const RowMatch& match) const {
    const bool exact = layer <= exact_layers_ || (n == 3 && std::string(GetParam()) == "tiny-random");
    EXPECT_GE(match.bytes_equal, exact ? 0.995 : 0.2) << what;
    EXPECT_LE(match.relative_error, exact ? 0.01 : 0.35) << what;
  }

  int exact_layers_ = 1;
};

TEST_P(CacheBytes, PackedRowsEqualTheReference) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const File cache(tiny.name + "/cache_golden.safetensors");
  ThreadPool pool(2);
  const size_t head_dim = static_cast<size_t>(tiny.config.head_dim);
  exact_layers_ = tiny.layout.sources[0].layer;
  for (int n : {3, 129, 300}) {
    Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + n});
    golden::Run(*tiny.model, &sequence, 0, n, n, &pool);
    const std::string prefix = "P" + std::to_string(n) + ".";
    for (const KvSource& source : tiny.layout.sources) {
      const std::string at = ".L" + std::to_string(source.layer);
      const size_t rows = static_cast<size_t>(n / source.ratio);
      Check(prefix + "global" + at, source.layer, n,
            MatchRows(RowFormat::kGlobalKv, tiny.config.head_dim,
                      JoinRows(cache.Codes(prefix + "global" + at), {}, rows),
                      [&](int64_t r) { return sequence.GlobalRow(source, r); }));
      Check(prefix + "index_key" + at, source.layer, n,
            MatchRows(RowFormat::kIndexKey, tiny.config.index_head_dim,
                      JoinRows(cache.Codes(prefix + "index_key" + at), {}, rows),
                      [&](int64_t r) { return sequence.IndexKeyRow(source, r); }));
      if (n % source.ratio == 0) continue;
      const float* tail = sequence.tails().data() + static_cast<size_t>(source.tail_slot) * 2 * head_dim;
      const std::vector<float> k(tail, tail + head_dim), g(tail + head_dim, tail + 2 * head_dim);
      const double limit = source.layer <= exact_layers_ ? 0.005 : 0.1;
      EXPECT_LE(golden::WorstRowError(k, cache.Floats(prefix + "carry_kv" + at), head_dim), limit);
      EXPECT_LE(golden::WorstRowError(g, cache.Floats(prefix + "carry_score" + at), head_dim), limit);
    }
    for (int layer = 0; layer < tiny.layout.num_layers(); ++layer) {
      const std::string at = ".L" + std::to_string(layer);
      const int rows = std::min(n, tiny.config.sliding_window);
      Check(prefix + "window" + at, layer, n,
            MatchRows(RowFormat::kWindowKv, tiny.config.head_dim,
                      JoinRows(cache.Codes(prefix + "window_codes" + at),
                               cache.Codes(prefix + "window_scales" + at), static_cast<size_t>(rows)),
                      [&](int64_t r) { return sequence.WindowRow(layer, n - rows + r); }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, CacheBytes, ::testing::Values("tiny-random", "tiny-wide"));

}  // namespace
}  // namespace emberkv
