// Logits, selections, decode steps and replays of whole models (golden README 4, 6 and 8). Long prompts
// of a random model barely tell right from wrong: layers_golden_test.cc is the strict one.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <map>
#include <set>

#include "base/mapped_file.h"
#include "golden_data.h"

namespace emberkv {
namespace {

using golden::Compare;
using golden::Difference;
using golden::File;
using golden::Sequence;
using golden::TinyModel;

constexpr int kDecodeSteps = 40;

// Share of chosen entries that must agree at sources behind the first. The data's README suggests 0.75
// on average over prefill rows; over the few rows of a decode or replay, 16 entries each, two correct
// engines were seen at 0.65 (tiny-random, 513 tokens), so the limit for these is a smoke test.
constexpr double kDeepOverlap = 0.6;

std::vector<float> Slice(const std::vector<float>& all, size_t row, size_t width) {
  return {all.begin() + static_cast<int64_t>(row * width), all.begin() + static_cast<int64_t>((row + 1) * width)};
}

// Entries of golden id lists (-1 = none) that ours also chose, as a share.
struct Overlap {
  size_t common = 0;
  size_t total = 0;

  void Add(const std::vector<int32_t>& ours, const int64_t* golden, size_t columns) {
    const std::set<int64_t> mine(ours.begin(), ours.end());
    for (size_t c = 0; c < columns; ++c) {
      if (golden[c] < 0) continue;
      ++total;
      common += mine.contains(golden[c]) ? 1 : 0;
    }
  }
  double share() const { return total == 0 ? 1.0 : static_cast<double>(common) / static_cast<double>(total); }
};

// Runs rows [begin, end) in one step, comparing every index source's lists with `golden` tensors
// `prefix + topk.L{source}` whose row i belongs to position first_row + i.
std::vector<float> RunComparing(const TinyModel& tiny, Sequence* sequence, int64_t begin, int64_t end,
                                const File& file, const std::string& prefix,
                                const std::map<int, int64_t>& first_row, std::map<int, Overlap>* overlap,
                                ThreadPool* pool) {
  Step step(pool);
  step.spans = {{sequence->state(), begin, end, true}};
  step.after_layer = [&](int layer, const Step& s) {
    if (s.selections.source_layer != layer) return;
    const std::string name = prefix + "topk.L" + std::to_string(layer);
    if (!file.Has(name)) return;
    const std::vector<int64_t> ids = file.Ints(name);
    const size_t columns = static_cast<size_t>(file.Shape(name)[1]);
    const int64_t first = first_row.contains(layer) ? first_row.at(layer) : 0;
    for (size_t r = 0; r < s.rows.size(); ++r) {
      const size_t at = static_cast<size_t>(s.rows[r].pos - first);
      (*overlap)[layer].Add(s.selections.selected[r], ids.data() + at * columns, columns);
    }
  };
  const Status status = tiny.model->Forward(&step);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return step.logits;
}

class Logits : public ::testing::TestWithParam<const char*> {};

TEST_P(Logits, PrefillMatchesAtEveryLength) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const File file(tiny.name + "/model_golden.safetensors");
  const bool wide = tiny.name == "tiny-wide";
  const std::vector<int64_t> lengths = file.Ints("lengths");
  const std::vector<float> logits = file.Floats("logits");
  const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
  ThreadPool pool(2);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t n = lengths[i];
    Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + n});
    std::map<int, Overlap> overlap;
    const std::vector<float> got = RunComparing(tiny, &sequence, 0, n, file, "P" + std::to_string(n) + ".",
                                                {}, &overlap, &pool);
    const Difference d = Compare(got, Slice(logits, i, vocab));
    printf("%s P %ld: max %.4f rms %.4f\n", tiny.name.c_str(), static_cast<long>(n), d.max, d.rms);
    // This engine's attention list has one cut for all lengths, that of the official decode and of
    // prefills of at least a window; below 128 tokens the official prefill of tiny-wide cuts its list
    // elsewhere (docs/decisions/0002), which costs up to 0.07. With its cut the difference is zero.
    EXPECT_LE(d.rms, n <= 33 ? (wide ? 0.08 : 0.001) : n <= 129 ? 0.15 : 0.35) << n;
    for (const auto& [layer, o] : overlap) {
      EXPECT_GE(o.share(), layer == tiny.config.index_source_layer_ids[0] ? 0.99 : 0.75)
          << "P" << n << " L" << layer;
    }
  }
}

TEST_P(Logits, PrefillMatchesWithSelectionDisabled) {
  const TinyModel& tiny = golden::Tiny(GetParam(), /*select_all=*/true);
  const File file(tiny.name + "/select_all_golden.safetensors");
  const std::vector<int64_t> lengths = file.Ints("lengths");
  const std::vector<float> logits = file.Floats("logits");
  const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
  ThreadPool pool(2);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t n = lengths[i];
    Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + n});
    const Difference d = Compare(golden::Run(*tiny.model, &sequence, 0, n, n, &pool), Slice(logits, i, vocab));
    EXPECT_LE(d.rms, n <= 3 ? 0.08 : 0.06) << n;  // 0.08: see PrefillMatchesAtEveryLength
    EXPECT_LE(d.max, 0.25) << n;
  }
}

TEST_P(Logits, DecodeStepsMatch) {
  for (bool select_all : {false, true}) {
    const TinyModel& tiny = golden::Tiny(GetParam(), select_all);
    const File file(tiny.name + (select_all ? "/select_all_golden.safetensors" : "/model_golden.safetensors"));
    const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
    ThreadPool pool(2);
    for (int64_t n : {33, 128, 300}) {
      Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + n + kDecodeSteps});
      golden::Run(*tiny.model, &sequence, 0, n, n, &pool);
      const std::string prefix = "decode.P" + std::to_string(n) + ".";
      const std::vector<float> logits = file.Floats(prefix + "logits");
      std::map<int, Overlap> overlap;
      std::map<int, int64_t> first_row;
      for (int layer : tiny.config.index_source_layer_ids) first_row[layer] = n;
      const int64_t steps = file.Shape(prefix + "logits")[0];
      ASSERT_LE(steps, kDecodeSteps);
      for (int64_t i = 0; i < steps; ++i) {
        const Difference d =
            Compare(RunComparing(tiny, &sequence, n + i, n + i + 1, file, prefix, first_row, &overlap, &pool),
                    Slice(logits, static_cast<size_t>(i), vocab));
        EXPECT_LE(d.rms, select_all ? 0.06 : 0.35) << "after " << n << " step " << i;
      }
      for (const auto& [layer, o] : overlap) {
        EXPECT_GE(o.share(), kDeepOverlap) << "P" << n << " L" << layer;
      }
    }
  }
}

// The literal official decode scores an open group's owner with the keys published last: those of the
// ratio-1 source at the previous step (numerics 17.1). This engine never does; fed with such steps the
// difference must be visible, which shows that the reading is a choice and that the test can tell.
TEST_P(Logits, OwnKeysAreUsedOnEveryStep) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const File file(tiny.name + "/model_golden.safetensors");
  const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
  const std::vector<float> own = file.Floats("decode.P300.logits");
  const std::vector<float> official = file.Floats("official_decode.P300.logits");
  Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + 301});
  ThreadPool pool(2);
  golden::Run(*tiny.model, &sequence, 0, 300, 300, &pool);
  const std::vector<float> got = golden::Run(*tiny.model, &sequence, 300, 301, 1, &pool);
  EXPECT_LT(Compare(got, Slice(own, 0, vocab)).rms, Compare(got, Slice(official, 0, vocab)).rms);
}

INSTANTIATE_TEST_SUITE_P(Golden, Logits, ::testing::Values("tiny-random", "tiny-wide"));

class Replay : public ::testing::TestWithParam<const char*> {
 protected:
  // Runs a case of replay_cases.json and leaves its state in *sequence.
  std::vector<float> RunCase(const TinyModel& tiny, const nlohmann::json& c, const Sequence& cold,
                             Sequence* sequence, const File& file, std::map<int, Overlap>* overlap) {
    const std::string name = c["name"];
    const int64_t h = c.value("H", int64_t{0});
    SequenceState* state = sequence->state();
    sequence->CopyPagesFrom(cold, h / tiny.layout.block_size);
    state->encoder_begin = c["enc_start"].get<int64_t>();
    state->decoder_begin = c["dec_start"].get<int64_t>();
    state->write_begin = h;
    std::map<int, int64_t> first_row;
    for (int layer : tiny.config.index_source_layer_ids) {
      first_row[layer] = layer < tiny.layout.encoder_layers() ? state->encoder_begin : state->decoder_begin;
    }
    return RunComparing(tiny, sequence, state->encoder_begin, c["P"].get<int64_t>(), file, name + ".",
                        first_row, overlap, &pool_);
  }

  ThreadPool pool_{2};
};

TEST_P(Replay, EveryCaseHolds) {
  const TinyModel& tiny = golden::Tiny(GetParam());
  const File file(tiny.name + "/replay_golden.safetensors");
  const std::string path = std::string(EMBERKV_TEST_DATA) + "/golden/" + tiny.name + "/replay_cases.json";
  const nlohmann::json cases = nlohmann::json::parse(*ReadTextFile(path, 1 << 20))["cases"];
  const size_t vocab = static_cast<size_t>(tiny.config.vocab_size);
  int exact_cases = 0, bounded_cases = 0;
  for (const nlohmann::json& c : cases) {
    const std::string name = c["name"];
    const int64_t p = c["P"].get<int64_t>();
    const int64_t h = c.value("H", int64_t{0});
    SCOPED_TRACE(name);
    Sequence cold(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + p + 6});
    const std::vector<float> full = golden::Run(*tiny.model, &cold, 0, p, p, &pool_);
    Sequence sequence(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + p + 6});
    std::map<int, Overlap> overlap;
    const std::vector<float> got = RunCase(tiny, c, cold, &sequence, file, &overlap);
    // Exact replays give the very bits of the full run, or of a cold run with the same decoder rows.
    const auto is_exact = [&](const char* field) { return c.contains(field) && c[field][2].get<bool>(); };
    if (is_exact("vs_full_forward")) {
      EXPECT_EQ(got, full);
    }
    if (is_exact("vs_cold_with_bounded_decoder")) {
      Sequence reference(tiny, {tiny.tokens.begin(), tiny.tokens.begin() + p + 6});
      reference.state()->decoder_begin = c["dec_start"].get<int64_t>();
      EXPECT_EQ(got, golden::Run(*tiny.model, &reference, 0, p, p, &pool_));
    }
    if (is_exact("vs_full_forward") || is_exact("vs_cold_with_bounded_decoder")) {
      ++exact_cases;
      EXPECT_EQ(sequence.AllPages(), cold.AllPages());
    }
    if (!file.Has(name + ".logits")) continue;
    ++bounded_cases;
    EXPECT_LE(Compare(got, file.Floats(name + ".logits")).rms, 0.35);
    for (const auto& [layer, o] : overlap) EXPECT_GE(o.share(), kDeepOverlap) << "L" << layer;
    for (const KvSource& source : tiny.layout.sources) {
      const std::string rows_name = name + ".new_global.L" + std::to_string(source.layer);
      if (!file.Has(rows_name)) continue;
      EXPECT_EQ(file.Shape(rows_name)[0], p / source.ratio - h / source.ratio);
      // Stored rows below H are what the cold run wrote.
      for (int64_t row = 0; row < h / source.ratio; ++row) {
        ASSERT_EQ(sequence.GlobalRow(source, row), cold.GlobalRow(source, row));
      }
    }
    if (!file.Has(name + ".decode6_logits")) continue;
    const std::vector<float> decode = file.Floats(name + ".decode6_logits");
    for (int64_t i = 0; i < 6; ++i) {
      const std::vector<float> next = golden::Run(*tiny.model, &sequence, p + i, p + i + 1, 1, &pool_);
      EXPECT_LE(Compare(next, Slice(decode, static_cast<size_t>(i), vocab)).rms, 0.35) << "step " << i;
    }
  }
  EXPECT_GE(exact_cases, 6);
  EXPECT_GE(bounded_cases, 9);
}

INSTANTIATE_TEST_SUITE_P(Golden, Replay, ::testing::Values("tiny-random", "tiny-wide"));

}  // namespace
}  // namespace emberkv
