#include "bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "base/mapped_file.h"
#include "base/thread_pool.h"
#include "bench/limits.h"
#include "bench/machine_facts.h"
#include "bench/model_work.h"
#include "formats/bf16.h"
#include "formats/row_codec.h"
#include "model/model.h"
#include "tokenizer/token_map.h"
#include "weights/checkpoint.h"

namespace emberkv {
namespace {

constexpr int kDistinctPages = 64;
constexpr int64_t kPrefillContext = 4096;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Rows of random bf16 values in a stored format.
void FillRows(RowFormat format, int channels, int num_rows, std::mt19937* bits, uint8_t* out) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(channels));
  const size_t row_bytes = RowBytes(format, channels);
  for (int r = 0; r < num_rows; ++r) {
    for (float& value : x) value = RoundToBf16(normal(*bits));
    // Finite values are never refused.
    static_cast<void>(EncodeRows(format, x.data(), x.size(), 1, channels, out + static_cast<size_t>(r) * row_bytes,
                                 row_bytes));
  }
}

// A sequence of `tokens` tokens whose caches are full of valid rows.
class SyntheticSequence {
 public:
  SyntheticSequence(const ModelConfig& config, const CacheLayout& layout, int64_t tokens, int64_t num_ids)
      : layout_(layout),
        num_blocks_((tokens + layout.block_size - 1) / layout.block_size),
        pages_(static_cast<size_t>(num_blocks_) * layout.page_bytes),
        windows_(layout.window_bytes()),
        tails_(layout.tail_bytes / sizeof(float)) {
    std::mt19937 bits(1);
    for (int64_t i = 0; i < tokens; ++i) tokens_.push_back(static_cast<int32_t>(bits() % static_cast<uint32_t>(num_ids)));
    for (int64_t block = 0; block < num_blocks_; ++block) FillPage(config, block, &bits);
    for (int64_t block = 0; block < num_blocks_; ++block) page_pointers_.push_back(PageAt(block));
    FillRows(RowFormat::kWindowKv, config.head_dim, config.sliding_window, &bits, windows_.data());
    const size_t layer_bytes = layout.window_bytes_per_layer;
    for (int layer = 1; layer < layout.num_layers(); ++layer) {
      std::copy_n(windows_.data(), layer_bytes, windows_.data() + static_cast<size_t>(layer) * layer_bytes);
    }
    state_.tokens = tokens_.data();
    state_.pages = page_pointers_.data();
    state_.writable_pages = page_pointers_.data();
    state_.windows = windows_.data();
    state_.tails = tails_.data();
  }

  SequenceState* state() { return &state_; }
  uint64_t page_bytes() const { return pages_.size(); }
  uint64_t fixed_bytes() const { return windows_.size() + tails_.size() * sizeof(float); }

 private:
  uint8_t* PageAt(int64_t block) { return pages_.data() + static_cast<size_t>(block) * layout_.page_bytes; }

  // The first pages are all different, later ones repeat them.
  void FillPage(const ModelConfig& config, int64_t block, std::mt19937* bits) {
    uint8_t* page = PageAt(block);
    if (block >= kDistinctPages) {
      std::copy_n(PageAt((*bits)() % kDistinctPages), layout_.page_bytes, page);
      return;
    }
    for (const KvSource& source : layout_.sources) {
      FillRows(RowFormat::kGlobalKv, config.head_dim, source.rows_per_block, bits, page + source.kv_offset);
      FillRows(RowFormat::kIndexKey, config.index_head_dim, source.rows_per_block, bits, page + source.key_offset);
    }
  }

  const CacheLayout& layout_;
  const int64_t num_blocks_;
  std::vector<int32_t> tokens_;
  std::vector<uint8_t> pages_, windows_;
  std::vector<float> tails_;
  std::vector<uint8_t*> page_pointers_;
  SequenceState state_;
};

struct LoadedModel {
  ModelConfig config;
  CacheLayout layout;
  std::unique_ptr<Model> model;
  int64_t num_ids = 0;  // token ids that the model runs on
};

Result<LoadedModel> LoadModel(const std::string& model_dir) {
  LoadedModel loaded;
  EMBERKV_ASSIGN_OR_RETURN(loaded.config, LoadModelConfig(model_dir));
  EMBERKV_ASSIGN_OR_RETURN(loaded.layout, MakeCacheLayout(loaded.config));
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::Open(model_dir, loaded.config));
  std::vector<int32_t> map;
  loaded.num_ids = loaded.config.vocab_size;
  if (!loaded.config.engram_layer_ids.empty()) {
    const std::filesystem::path file = std::filesystem::path(model_dir) / "tokenizer.json";
    std::optional<Tokenizer> tokenizer;
    std::error_code ignored;
    if (std::filesystem::exists(file, ignored)) {
      EMBERKV_ASSIGN_OR_RETURN(Tokenizer read, Tokenizer::Load(file.string()));
      tokenizer.emplace(std::move(read));
    }
    EMBERKV_ASSIGN_OR_RETURN(const TokenMap tokens,
                             TokenMapFor(model_dir, tokenizer ? &*tokenizer : nullptr, loaded.config.vocab_size,
                                         loaded.config.engram_compressed_vocab_size));
    map.assign(tokens.ids().begin(), tokens.ids().end());
    loaded.num_ids = static_cast<int64_t>(map.size());
  }
  EMBERKV_ASSIGN_OR_RETURN(loaded.model, Model::Load(std::make_shared<const Checkpoint>(std::move(checkpoint)),
                                                     loaded.config, loaded.layout, std::move(map)));
  return loaded;
}

// Reads all tensors' files once.
Result<double> ReadSeconds(const std::string& model_dir) {
  const double start = Now();
  std::vector<uint8_t> buffer(size_t{8} << 20);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir, error)) {
    if (entry.path().extension() != ".safetensors") continue;
    EMBERKV_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(entry.path().string()));
    for (uint64_t at = 0; at < file.size(); at += buffer.size()) {
      const size_t piece = static_cast<size_t>(std::min<uint64_t>(buffer.size(), file.size() - at));
      EMBERKV_RETURN_IF_ERROR(file.ReadAt(at, std::span(buffer).first(piece)));
    }
  }
  if (error) return Unavailable(fmt::format("cannot list {}: {}", model_dir, error.message()));
  return Now() - start;
}

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, const LoadedModel& loaded, int64_t longest, ModelReport* report)
      : options_(options),
        loaded_(loaded),
        report_(report),
        threads_(options.threads),
        step_(&threads_),
        sequence_(loaded.config, loaded.layout, longest, loaded.num_ids) {
    report_->global_kv_bytes = sequence_.page_bytes();
    report_->sequence_bytes = sequence_.fixed_bytes();
  }

  Status Decode(int64_t context) {
    const auto run = [&] { RunSpan(context, context + 1, true, 0); };
    DecodePoint point;
    point.context = context;
    point.read_bytes = DecodeReadBytes(loaded_.config, loaded_.layout, loaded_.model->weight_bytes(), context);
    MeasurementSpec spec;
    spec.name = fmt::format("decode at {} tokens", context);
    spec.unit = "GB/s";
    spec.threads = options_.threads;
    spec.subject = {"decode", static_cast<double>(point.read_bytes) / 1e9, run};
    spec.limit = DramReadLimit(options_.threads);
    spec.goal = 0.85;
    point.of_dram = Measure(spec, options_.rounds);
    EMBERKV_RETURN_IF_ERROR(status_);
    point.seconds = static_cast<double>(point.read_bytes) / 1e9 / point.of_dram.achieved;
    step_.stage_times = &point.stages;
    run();
    step_.stage_times = nullptr;
    report_->scratch_bytes.push_back(step_.bytes());
    report_->decode.push_back(std::move(point));
    return status_;
  }

  Status Prefill(int chunk, bool is_full, int64_t context) {
    PrefillPoint point;
    point.chunk = chunk;
    point.is_full = is_full;
    const double gflop = PrefillGflop(loaded_.config, loaded_.layout, context, chunk, is_full);
    MeasurementSpec spec;
    spec.name = fmt::format("prefill of {} tokens at {}, {}", chunk, context, is_full ? "every layer" : "encoder");
    spec.unit = "GFLOP/s";
    spec.threads = options_.threads;
    spec.subject = {"prefill", gflop,
                    [&] { RunSpan(context, context + chunk, false, is_full ? 0 : context + chunk); }};
    spec.limit = Bf16DotLimit(options_.threads);
    spec.goal = 0.75;
    point.of_bf16 = Measure(spec, options_.rounds);
    point.tokens_per_second = point.of_bf16.achieved / gflop * chunk;
    report_->prefill.push_back(std::move(point));
    return status_;
  }

 private:
  void RunSpan(int64_t begin, int64_t end, bool wants_logits, int64_t decoder_begin) {
    sequence_.state()->decoder_begin = decoder_begin;
    step_.spans.assign(1, {sequence_.state(), begin, end, wants_logits, 0});
    const Status status = loaded_.model->Forward(&step_);
    if (status_.ok()) status_ = status;
  }

  const ModelBenchOptions& options_;
  const LoadedModel& loaded_;
  ModelReport* const report_;
  ThreadPool threads_;
  Step step_;
  SyntheticSequence sequence_;
  Status status_;
};

}  // namespace

Result<ModelReport> BenchModel(const ModelBenchOptions& options) {
  const auto say = [&](const std::string& what) {
    if (options.progress) options.progress(what);
  };
  ModelReport report;
  say("reading the checkpoint");
  EMBERKV_ASSIGN_OR_RETURN(report.read_seconds, ReadSeconds(options.model_dir));
  say("loading the model");
  const double start = Now();
  EMBERKV_ASSIGN_OR_RETURN(const LoadedModel loaded, LoadModel(options.model_dir));
  report.load_seconds = Now() - start;
  report.weight_bytes = loaded.model->weight_bytes();
  report.loaded_bytes = ResidentBytes();
  report.load_peak_bytes = PeakResidentBytes();

  int64_t longest = 0;
  for (const int64_t context : options.contexts) longest = std::max(longest, context + 1);
  for (const int chunk : options.chunks) longest = std::max(longest, kPrefillContext + chunk);
  if (longest > loaded.config.max_position_embeddings + 1) {
    return InvalidArgument(fmt::format("a context has {} tokens; the model allows {}", longest - 1,
                                       loaded.config.max_position_embeddings));
  }
  say("filling the context");
  ModelBench bench(options, loaded, longest, &report);
  for (const int64_t context : options.contexts) {
    say(fmt::format("decode at {} tokens", context));
    EMBERKV_RETURN_IF_ERROR(bench.Decode(context));
  }
  for (const int chunk : options.chunks) {
    for (const bool is_full : {false, true}) {
      say(fmt::format("prefill in chunks of {}", chunk));
      EMBERKV_RETURN_IF_ERROR(bench.Prefill(chunk, is_full, kPrefillContext));
    }
  }
  return report;
}

}  // namespace emberkv
