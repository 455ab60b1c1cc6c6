#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/isa.h"
#include "base/mapped_file.h"
#include "engine/engine_parts.h"
#include "store/local_store.h"
#include "tokenizer/token_map.h"
#include "weights/checkpoint.h"
#include "weights/fingerprint.h"

namespace emberkv {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxPrefillChunk = 65536;
constexpr uint64_t kMaxConfigBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxTokenizerBytes = uint64_t{256} << 20;

Status OutOfRange(const char* field, int64_t value, int64_t smallest, int64_t largest) {
  return InvalidArgument(
      fmt::format("{} is {}; allowed: {} to {}", field, value, smallest, largest));
}

Status CheckOptions(const EngineOptions& options) {
  if (options.num_threads < 0 || options.num_threads > kMaxThreads) {
    return OutOfRange("num_threads", options.num_threads, 0, kMaxThreads);
  }
  if (options.prefill_chunk < 1 || options.prefill_chunk > kMaxPrefillChunk) {
    return OutOfRange("prefill_chunk", options.prefill_chunk, 1, kMaxPrefillChunk);
  }
  return Status::Ok();
}

// `wanted` tokens of context, 0 for all of `largest`.
Result<int64_t> ContextOf(int64_t wanted, int64_t largest) {
  if (wanted < 0 || wanted > largest) return OutOfRange("max_context", wanted, 0, largest);
  return wanted == 0 ? largest : wanted;
}

int ThreadsOf(const EngineOptions& options) {
  if (options.num_threads > 0) return options.num_threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

Result<std::optional<Tokenizer>> LoadTokenizer(const std::string& model_dir) {
  const std::filesystem::path file = std::filesystem::path(model_dir) / "tokenizer.json";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::optional<Tokenizer>();
  EMBERKV_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Load(file.string()));
  return std::optional<Tokenizer>(std::move(tokenizer));
}

// Compressed Engram ids by token id; empty for a model without Engram.
Result<std::vector<int32_t>> LoadEngramMap(const EngineOptions& options, const ModelConfig& config,
                                           const std::optional<Tokenizer>& tokenizer) {
  if (config.engram_layer_ids.empty()) return std::vector<int32_t>();
  EMBERKV_ASSIGN_OR_RETURN(
      const TokenMap map,
      TokenMapFor(options.model_dir, tokenizer ? &*tokenizer : nullptr, config.vocab_size,
                  config.engram_compressed_vocab_size));
  return std::vector<int32_t>(map.ids().begin(), map.ids().end());
}

// What pages of this model may be reused for: weights, config, tokenizer, layout and numerics.
Result<Digest> KeyRootOf(const std::string& model_dir, const Checkpoint& checkpoint,
                         const CacheLayout& layout, ThreadPool& threads) {
  const std::filesystem::path dir(model_dir);
  EMBERKV_ASSIGN_OR_RETURN(const std::string config,
                           ReadTextFile((dir / "config.json").string(), kMaxConfigBytes));
  IdentityFields fields;
  fields.model = ModelFingerprint(checkpoint, config, threads);
  std::error_code ignored;
  if (std::filesystem::exists(dir / "tokenizer.json", ignored)) {
    EMBERKV_ASSIGN_OR_RETURN(const std::string tokenizer,
                             ReadTextFile((dir / "tokenizer.json").string(), kMaxTokenizerBytes));
    fields.tokenizer = Sha256(tokenizer);
  }
  fields.layout = LayoutFingerprint(layout);
  fields.numerics_revision = std::string(kNumericsRevision);
  return KeyRoot(fields);
}

Result<std::vector<int32_t>> EncodeWith(const std::optional<Tokenizer>& tokenizer,
                                        std::string_view text) {
  if (!tokenizer) {
    return InvalidArgument("the model has no tokenizer.json: give token ids instead of text");
  }
  return tokenizer->Encode(text);
}

std::string DecodeWith(const std::optional<Tokenizer>& tokenizer, std::span<const int32_t> tokens) {
  return tokenizer ? tokenizer->Decode(tokens) : "";
}

std::vector<bool> AreStored(KvStore* store, std::span<const BlockIdentity> blocks) {
  std::vector<BlockHash> keys;
  keys.reserve(blocks.size());
  for (const BlockIdentity& block : blocks) keys.push_back(block.hash);
  return store->Contains(keys);
}

// Adds the blocks at the front of `chain` that the store has; returns whether there were any.
bool AddFound(KvStore* store, std::span<const BlockIdentity> chain, PrefixForecast* forecast) {
  const std::vector<bool> is_stored = AreStored(store, chain);
  const auto run = std::ranges::find(is_stored, false) - is_stored.begin();
  forecast->blocks.insert(forecast->blocks.end(), chain.begin(), chain.begin() + run);
  return run > 0;
}

GetOutcome MissOf(KvStore* store, const BlockIdentity& block, size_t page_bytes) {
  std::vector<uint8_t> page(page_bytes);
  std::vector<GetRequest> requests = {
      {block.hash, block.parent, block.provenance, block.tokens, page}};
  return store->Get(std::move(requests), std::chrono::seconds(10))->Wait().front();
}

Status OpenCaches(const EngineOptions& options, std::unique_ptr<PagePool> pool, EngineParts* parts) {
  if (!options.store_dir.empty()) {
    LocalStoreOptions store;
    store.directory = options.store_dir;
    store.budget_bytes = options.store_budget_bytes;
    store.retention = options.store_retention;
    EMBERKV_ASSIGN_OR_RETURN(parts->store, LocalStore::Open(std::move(store), &parts->clock));
    parts->keeper = std::make_unique<StoreKeeper>(parts->store.get());
  }
  parts->cache = std::make_unique<PageCache>(std::move(pool), parts->store.get());
  WindowPoolOptions windows;
  windows.ttl_us = options.window_ttl.count();
  if (options.window_budget_bytes) {
    windows.budget_bytes = *options.window_budget_bytes;
  } else {
    EMBERKV_ASSIGN_OR_RETURN(windows.budget_bytes, DefaultWindowBudget());
  }
  parts->windows = std::make_unique<WindowPool>(windows, &parts->clock);
  return Status::Ok();
}

}  // namespace

Engine::Engine(std::shared_ptr<EngineParts> parts) : parts_(std::move(parts)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::Load(const EngineOptions& options,
                                             const std::function<void(double)>& progress) {
  EMBERKV_RETURN_IF_ERROR(CheckOptions(options));
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(options.model_dir));
  EMBERKV_ASSIGN_OR_RETURN(const CacheLayout layout, MakeCacheLayout(config));
  auto parts = std::make_shared<EngineParts>(ThreadsOf(options));
  EMBERKV_ASSIGN_OR_RETURN(parts->max_context,
                           ContextOf(options.max_context, config.max_position_embeddings));
  parts->prefill_chunk = options.prefill_chunk;

  // The pool first: a budget that cannot be had is known before the weights are read.
  size_t budget = options.kv_budget_bytes.value_or(0);
  if (!options.kv_budget_bytes) {
    EMBERKV_ASSIGN_OR_RETURN(budget, DefaultPoolBudget());
  }
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool, PagePool::Make(layout.page_bytes, budget));

  EMBERKV_ASSIGN_OR_RETURN(parts->tokenizer, LoadTokenizer(options.model_dir));
  EMBERKV_ASSIGN_OR_RETURN(std::vector<int32_t> token_map,
                           LoadEngramMap(options, config, parts->tokenizer));
  parts->num_token_ids =
      token_map.empty() ? config.vocab_size : static_cast<int32_t>(token_map.size());
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint opened, Checkpoint::Open(options.model_dir, config));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  EMBERKV_ASSIGN_OR_RETURN(parts->key_root,
                           KeyRootOf(options.model_dir, *checkpoint, layout, parts->threads));
  EMBERKV_RETURN_IF_ERROR(OpenCaches(options, std::move(pool), parts.get()));
  EMBERKV_ASSIGN_OR_RETURN(
      parts->model, Model::Load(checkpoint, config, layout, std::move(token_map), progress));
  return std::unique_ptr<Engine>(new Engine(std::move(parts)));
}

Result<std::unique_ptr<Session>> Engine::OpenSession(const SessionOptions& options) const {
  SessionOptions checked = options;
  EMBERKV_ASSIGN_OR_RETURN(checked.max_context,
                           ContextOf(options.max_context, parts_->max_context));
  return std::unique_ptr<Session>(new Session(parts_, checked));
}

const ModelConfig& Engine::config() const { return parts_->model->config(); }
const CacheLayout& Engine::layout() const { return parts_->model->layout(); }
size_t Engine::weight_bytes() const { return parts_->model->weight_bytes(); }
PagePoolStats Engine::pool_stats() const { return parts_->cache->pool()->stats(); }

EngineCacheStats Engine::cache_stats() const {
  EngineCacheStats stats;
  stats.pages = parts_->cache->stats();
  stats.windows = parts_->windows->stats();
  if (parts_->store) stats.store = parts_->store->Stats();
  return stats;
}

bool Engine::Flush(std::chrono::milliseconds timeout) const { return parts_->cache->Flush(timeout); }

int64_t Engine::max_context() const { return parts_->max_context; }
int Engine::num_threads() const { return parts_->threads.num_threads(); }
const char* Engine::isa_name() const { return IsaName(ActiveIsa()); }
bool Engine::has_tokenizer() const { return parts_->tokenizer.has_value(); }

Result<std::vector<int32_t>> Engine::Encode(std::string_view text) const {
  return EncodeWith(parts_->tokenizer, text);
}

std::string Engine::Decode(std::span<const int32_t> tokens) const {
  return DecodeWith(parts_->tokenizer, tokens);
}

PrefixProbe::PrefixProbe(ModelConfig config, CacheLayout layout, std::optional<Tokenizer> tokenizer,
                         const Digest& key_root)
    : config_(std::move(config)),
      layout_(std::move(layout)),
      tokenizer_(std::move(tokenizer)),
      key_root_(key_root) {}

Result<PrefixProbe> PrefixProbe::Open(const std::string& model_dir) {
  EMBERKV_ASSIGN_OR_RETURN(ModelConfig config, LoadModelConfig(model_dir));
  EMBERKV_ASSIGN_OR_RETURN(CacheLayout layout, MakeCacheLayout(config));
  EMBERKV_ASSIGN_OR_RETURN(std::optional<Tokenizer> tokenizer, LoadTokenizer(model_dir));
  EMBERKV_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(model_dir, config));
  ThreadPool threads(ThreadsOf({}));
  EMBERKV_ASSIGN_OR_RETURN(const Digest key_root,
                           KeyRootOf(model_dir, checkpoint, layout, threads));
  return PrefixProbe(std::move(config), std::move(layout), std::move(tokenizer), key_root);
}

Result<std::vector<int32_t>> PrefixProbe::Encode(std::string_view text) const {
  return EncodeWith(tokenizer_, text);
}

std::string PrefixProbe::Decode(std::span<const int32_t> tokens) const {
  return DecodeWith(tokenizer_, tokens);
}

// The walk of FindPrefix, asking only whether pages are there.
PrefixForecast PrefixProbe::Forecast(KvStore* store, std::span<const int32_t> prompt,
                                     ReplayMode replay) const {
  PrefixForecast forecast;
  const auto block = static_cast<size_t>(layout_.block_size);
  const size_t reusable =
      prompt.empty() || !MayReuse(replay) ? 0 : (prompt.size() - 1) / block * block;
  for (bool is_tried = false; forecast.blocks.size() * block < reusable;) {
    const size_t here = forecast.blocks.size() * block;
    const BlockHash parent = here == 0 ? key_root_ : forecast.blocks.back().hash;
    const auto rest = prompt.subspan(here, reusable - here);
    const Provenance next = is_tried ? Provenance{here} : forecast.provenance;
    if (AddFound(store, ChainBlocks(parent, next, rest, layout_.block_size), &forecast)) {
      forecast.provenance = next;
      is_tried = false;
    } else if (is_tried || here == 0 || !MayReuseReplayed(replay)) {
      break;
    } else {
      is_tried = true;
    }
  }
  forecast.num_found = forecast.blocks.size();
  const size_t hit = forecast.num_found * block;
  if (hit < reusable) {
    const std::vector<BlockIdentity> missing =
        ChainBlocks(hit == 0 ? key_root_ : forecast.blocks.back().hash, forecast.provenance,
                    prompt.subspan(hit, reusable - hit), layout_.block_size);
    forecast.blocks.insert(forecast.blocks.end(), missing.begin(), missing.end());
    forecast.miss = MissOf(store, missing.front(), layout_.page_bytes);
  }
  forecast.is_stored = AreStored(store, forecast.blocks);
  forecast.resume = PlanResume(layout_, config_.sliding_window, replay, static_cast<int64_t>(hit),
                               false, static_cast<int64_t>(prompt.size()));
  if (!forecast.resume.is_canonical || !forecast.provenance.is_canonical()) {
    forecast.provenance = {hit};
  }
  return forecast;
}

}  // namespace emberkv
