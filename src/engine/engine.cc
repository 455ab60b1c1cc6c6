#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/isa.h"
#include "base/machine_memory.h"
#include "base/mapped_file.h"
#include "engine/engine_parts.h"
#include "engine/late_work.h"
#include "layout/scratch.h"
#include "store/local_store.h"
#include "tokenizer/token_map.h"
#include "weights/checkpoint.h"
#include "weights/fingerprint.h"

namespace emberkv {
namespace {

constexpr std::chrono::milliseconds kReasonTimeout{2'000};  // for the store to tell why a block is missing
constexpr size_t kLeastDefaultPages = 64;
constexpr int kMaxThreads = 1024;
constexpr int kMaxPrefillChunk = 65536;
constexpr uint64_t kReserveShare = 16;  // of the machine's memory: for the system and its cache of files
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
Result<IdentityFields> IdentityOf(const std::string& model_dir, const Checkpoint& checkpoint,
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
  return fields;
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

// The store waits for its disk as long as it takes; the caller does not.
Result<uint64_t> EraseStored(const std::shared_ptr<EngineParts>& parts, const Digest& tenant,
                             std::chrono::steady_clock::time_point deadline) {
  if (parts->store == nullptr) return uint64_t{0};
  const auto erased = std::make_shared<std::optional<Result<uint64_t>>>();
  if (!FinishBy(deadline, [parts, tenant, erased] { *erased = parts->store->EraseTenant(tenant); })) {
    return Unavailable("the store is busy and will erase later: erase again to be sure");
  }
  return std::move(**erased);
}

std::vector<std::optional<CacheTier>> StoredTiers(KvStore* store, std::span<const BlockIdentity> blocks) {
  std::vector<BlockHash> keys;
  for (const BlockIdentity& block : blocks) keys.push_back(block.hash);
  std::vector<std::optional<CacheTier>> tiers;
  for (const bool is_stored : store->Contains(keys)) {
    tiers.push_back(is_stored ? std::optional(CacheTier::kStore) : std::nullopt);
  }
  return tiers;
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
    EMBERKV_ASSIGN_OR_RETURN(parts->store, LocalStore::Open(std::move(store), parts->clock.get()));
    parts->keeper = std::make_unique<StoreKeeper>(parts->store.get());
  }
  EMBERKV_ASSIGN_OR_RETURN(parts->tenant_secret, TenantSecret(options.store_dir));
  parts->cache = std::make_unique<PageCache>(std::move(pool), parts->store.get());
  WindowPoolOptions windows;
  windows.ttl_us = options.window_ttl.count();
  if (options.window_budget_bytes) {
    windows.budget_bytes = *options.window_budget_bytes;
  } else {
    EMBERKV_ASSIGN_OR_RETURN(windows.budget_bytes, DefaultWindowBudget());
  }
  parts->windows = std::make_unique<WindowPool>(windows, parts->clock.get());
  return Status::Ok();
}

uint64_t WeightFileBytes(const std::string& model_dir) {
  uint64_t bytes = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(model_dir, ignored)) {
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size(ignored);
  }
  return bytes;
}

// Half of the memory that is free beside the weights. They come first, up to three quarters of what is free:
// larger ones stream their experts.
Result<size_t> DefaultKvBudget(const std::string& model_dir, size_t page_bytes) {
  EMBERKV_ASSIGN_OR_RETURN(const size_t half_of_free, DefaultPoolBudget());
  const uint64_t weights = std::min<uint64_t>(WeightFileBytes(model_dir) / 2, half_of_free / 4 * 3);
  return std::max<size_t>(half_of_free - weights, kLeastDefaultPages * page_bytes);
}

// Of a full step, with what would undo it.
uint64_t ScratchOf(const ModelConfig& config, const CacheLayout& layout, int rows, int threads) {
  return StepScratch(config, layout, rows, threads).total() + StepUndo::MostBytes(layout, rows);
}

// What the machine has beside page pool, windows, scratch and a reserve.
Result<uint64_t> DefaultWeightMemory(const EngineParts& parts, uint64_t scratch_bytes) {
  const uint64_t machine = MachineMemoryBytes();
  if (machine == 0) {
    return Unavailable("the system does not tell its memory size; give the weights a budget");
  }
  const uint64_t taken = parts.cache->pool()->stats().capacity_bytes() + parts.windows->stats().budget_bytes +
                         scratch_bytes + machine / kReserveShare;
  return machine - std::min(machine, taken);
}

Status LoadModel(const EngineOptions& options, const ModelConfig& config, const CacheLayout& layout,
                 std::shared_ptr<const Checkpoint> checkpoint, std::vector<int32_t> token_map,
                 const std::function<void(double)>& progress, EngineParts* parts) {
  LoadOptions load;
  load.pool = &parts->threads;
  load.progress = progress;
  if (options.weight_memory_bytes) {
    load.weight_memory_bytes = *options.weight_memory_bytes;
  } else {
    const uint64_t scratch = ScratchOf(config, layout, options.prefill_chunk, parts->threads.num_threads());
    EMBERKV_ASSIGN_OR_RETURN(load.weight_memory_bytes, DefaultWeightMemory(*parts, scratch));
  }
  EMBERKV_ASSIGN_OR_RETURN(parts->model,
                           Model::Load(std::move(checkpoint), config, layout, std::move(token_map), load));
  const uint64_t held = parts->model->weight_bytes();
  if (options.weight_memory_bytes && held > *options.weight_memory_bytes) {
    return ResourceExhausted(
        fmt::format("weight_memory_bytes is {}; the weights that every token needs take {}",
                    *options.weight_memory_bytes, held));
  }
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
    EMBERKV_ASSIGN_OR_RETURN(budget, DefaultKvBudget(options.model_dir, layout.page_bytes));
  }
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<PagePool> pool, PagePool::Make(layout.page_bytes, budget));

  EMBERKV_ASSIGN_OR_RETURN(parts->tokenizer, LoadTokenizer(options.model_dir));
  EMBERKV_ASSIGN_OR_RETURN(std::vector<int32_t> token_map,
                           LoadEngramMap(options, config, parts->tokenizer));
  parts->num_token_ids =
      token_map.empty() ? config.vocab_size : static_cast<int32_t>(token_map.size());
  EMBERKV_ASSIGN_OR_RETURN(Checkpoint opened, Checkpoint::Open(options.model_dir, config));
  const auto checkpoint = std::make_shared<const Checkpoint>(std::move(opened));
  EMBERKV_ASSIGN_OR_RETURN(parts->identity,
                           IdentityOf(options.model_dir, *checkpoint, layout, parts->threads));
  EMBERKV_RETURN_IF_ERROR(OpenCaches(options, std::move(pool), parts.get()));
  EMBERKV_RETURN_IF_ERROR(
      LoadModel(options, config, layout, checkpoint, std::move(token_map), progress, parts.get()));
  const Model* const model = parts->model.get();
  parts->scheduler = std::make_unique<StepScheduler>([model](Step* step) { return model->Forward(step); },
                                                     &model->layout(), &parts->threads, parts->prefill_chunk);
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
ExpertStats Engine::expert_stats() const { return parts_->model->expert_stats(); }
PagePoolStats Engine::pool_stats() const { return parts_->cache->pool()->stats(); }

EngineCacheStats Engine::cache_stats() const {
  EngineCacheStats stats;
  stats.pages = parts_->cache->stats();
  stats.windows = parts_->windows->stats();
  if (parts_->store) stats.store = parts_->store->Stats();
  return stats;
}

StepSchedulerStats Engine::scheduler_stats() const { return parts_->scheduler->stats(); }

MemoryPlan Engine::memory_plan() const {
  const CacheLayout& layout = parts_->model->layout();
  const PagePoolStats pool = pool_stats();
  MemoryPlan plan;
  const ExpertStats experts = expert_stats();
  plan.weight_bytes = weight_bytes() - experts.kept_bytes + experts.most_bytes;
  plan.expert_bytes = experts.most_bytes;
  plan.page_bytes = pool.capacity_pages * layout.page_bytes;
  plan.window_pool_bytes = parts_->windows->stats().budget_bytes;
  plan.scratch_bytes = ScratchOf(config(), layout, parts_->prefill_chunk, num_threads());
  plan.session_bytes = layout.window_bytes() + layout.tail_bytes;
  plan.pool_pages = static_cast<int64_t>(pool.capacity_pages);
  plan.block_size = layout.block_size;
  return plan;
}

PrefixForecast Engine::Forecast(const TenantName& tenant, std::span<const int32_t> prompt,
                                ReplayMode replay) const {
  PageCache& cache = *parts_->cache;
  return ForecastPrefix(
      layout(), config().sliding_window, TenantKeyRoot(parts_->identity, parts_->tenant_secret, tenant), prompt,
      replay, [&](std::span<const BlockIdentity> blocks) { return cache.Find(blocks); },
      [&](const BlockIdentity& block) { return MissReasonName(cache.ReasonOfMiss(block, kReasonTimeout)); });
}

Result<uint64_t> Engine::EraseTenant(const std::string& name, std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const Digest tenant = TenantMark(parts_->tenant_secret, name);
  // The store first and last: a page read from it between is forgotten with the memory's, and one written
  // between is gone at the end.
  const Result<uint64_t> erased = EraseStored(parts_, tenant, deadline);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const bool is_quiet = parts_->cache->Erase(tenant, std::max(left, std::chrono::milliseconds(0)));
  parts_->windows->Erase(tenant);
  EMBERKV_RETURN_IF_ERROR(erased.status());
  EMBERKV_ASSIGN_OR_RETURN(const uint64_t written_since, EraseStored(parts_, tenant, deadline));
  if (!is_quiet) {
    return Unavailable(fmt::format("a write to the store is still under way: erase tenant '{}' again", name));
  }
  return *erased + written_since;
}

TenantSum Engine::StoredBy(const std::string& name) const {
  TenantSum none;
  none.tenant = TenantMark(parts_->tenant_secret, name);
  if (!parts_->store) return none;
  const std::vector<TenantSum> sums = parts_->store->Stats().tenants;
  const auto found = std::ranges::find(sums, none.tenant, &TenantSum::tenant);
  return found == sums.end() ? none : *found;
}

bool Engine::Flush(std::chrono::milliseconds timeout) const {
  const bool is_flushed = parts_->cache->Flush(timeout);
  parts_->has_given_up_disk = !is_flushed;
  return is_flushed;
}

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
  EMBERKV_ASSIGN_OR_RETURN(const IdentityFields identity,
                           IdentityOf(model_dir, checkpoint, layout, threads));
  return PrefixProbe(std::move(config), std::move(layout), std::move(tokenizer), KeyRoot(identity));
}

Result<std::vector<int32_t>> PrefixProbe::Encode(std::string_view text) const {
  return EncodeWith(tokenizer_, text);
}

std::string PrefixProbe::Decode(std::span<const int32_t> tokens) const {
  return DecodeWith(tokenizer_, tokens);
}

PrefixForecast PrefixProbe::Forecast(KvStore* store, std::span<const int32_t> prompt,
                                     ReplayMode replay) const {
  return ForecastPrefix(
      layout_, config_.sliding_window, key_root_, prompt, replay,
      [&](std::span<const BlockIdentity> blocks) { return StoredTiers(store, blocks); },
      [&](const BlockIdentity& block) { return GetOutcomeName(MissOf(store, block, layout_.page_bytes)); });
}

}  // namespace emberkv
