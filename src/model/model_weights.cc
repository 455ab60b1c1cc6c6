#include "model/model_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>

namespace emberkv {
namespace {

// Whether `n` little-endian values hold a NaN or an infinity.
bool HasNonFinite(const uint8_t* bytes, int64_t n, int value_bytes) {
  // The upper 16 bits of both bf16 and fp32 hold the whole exponent.
  for (int64_t i = 0; i < n; ++i) {
    const uint8_t* top = bytes + (i + 1) * value_bytes - 2;
    const unsigned exponent = ((top[1] & 0x7fu) << 1) | (top[0] >> 7);
    if (exponent == 0xff) return true;
  }
  return false;
}

int64_t NumValues(const std::vector<int64_t>& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

// Reads one checkpoint into packed form. Accessors return the first error through `status_`, so that a
// layer can be listed as plain assignments and checked once.
class WeightReader {
 public:
  explicit WeightReader(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  const Status& status() const { return status_; }

  PackedMatrix Fp8(const std::string& name) {
    const Fp8Matrix m = TakeFp8(name);
    return PackedMatrix::FromFp8(static_cast<int>(m.rows), static_cast<int>(m.cols), m.codes,
                                 m.scales);
  }

  // Row groups of an FP8 matrix, each [rows / groups, cols]; group boundaries lie on tile boundaries.
  std::vector<PackedMatrix> Fp8Groups(const std::string& name, int groups) {
    const Fp8Matrix m = TakeFp8(name);
    const int64_t rows = m.rows / groups;
    const int64_t tiles_per_row = (m.cols + 31) / 32;
    std::vector<PackedMatrix> out;
    for (int g = 0; g < groups; ++g) {
      out.push_back(PackedMatrix::FromFp8(static_cast<int>(rows), static_cast<int>(m.cols),
                                          m.codes + g * rows * m.cols,
                                          m.scales + g * (rows / 32) * tiles_per_row));
    }
    return out;
  }

  PackedMatrix Bf16(const std::string& name) {
    const Bf16Tensor t = Bf16View(name);
    if (t.shape.size() != 2) return {};
    return PackedMatrix::FromBf16(static_cast<int>(t.shape[0]), static_cast<int>(t.shape[1]), t.bytes);
  }

  PackedMatrix F32(const std::string& name) {
    const F32Tensor t = F32View(name);
    if (t.shape.size() != 2) return {};
    return PackedMatrix::FromF32(static_cast<int>(t.shape[0]), static_cast<int>(t.shape[1]), t.bytes);
  }

  Bf16Tensor Bf16View(const std::string& name) {
    const Bf16Tensor t = Take(checkpoint_.Bf16(name));
    if (t.bytes != nullptr) Check(!HasNonFinite(t.bytes, NumValues(t.shape), 2), name);
    return t;
  }
  F32Tensor F32View(const std::string& name) {
    const F32Tensor t = Take(checkpoint_.F32(name));
    if (t.bytes != nullptr) Check(!HasNonFinite(t.bytes, NumValues(t.shape), 4), name);
    return t;
  }
  std::vector<float> Bf16Vector(const std::string& name) { return Bf16View(name).ToFloats(); }
  std::vector<float> F32Vector(const std::string& name) { return F32View(name).ToFloats(); }

 private:
  Fp8Matrix TakeFp8(const std::string& name) {
    const Fp8Matrix m = Take(checkpoint_.Fp8(name));
    const int64_t tiles = ((m.rows + 31) / 32) * ((m.cols + 31) / 32);
    const bool nan_code = std::any_of(m.codes, m.codes + m.rows * m.cols,
                                      [](uint8_t code) { return (code & 0x7f) == 0x7f; });
    Check(!nan_code && std::find(m.scales, m.scales + tiles, 0xff) == m.scales + tiles, name);
    return m;
  }

  void Check(bool finite, const std::string& name) {
    if (finite || !status_.ok()) return;
    status_ = NotFinite(name);
  }

  template <typename T>
  T Take(Result<T> result) {
    if (result.ok()) return std::move(result).value();
    if (status_.ok()) status_ = result.status();
    return T{};
  }

  const Checkpoint& checkpoint_;
  Status status_;
};

HyperConnectionWeights ReadHyperConnection(WeightReader* reader, const std::string& prefix) {
  return {reader->F32(prefix + "_fn"), reader->F32Vector(prefix + "_scale"),
          reader->F32Vector(prefix + "_base")};
}

AttentionWeights ReadAttention(WeightReader* reader, const ModelConfig& config, const LayerPlan& plan,
                               const std::string& prefix) {
  AttentionWeights w;
  w.wq_a = reader->Fp8(prefix + "wq_a");
  w.wq_b = reader->Fp8(prefix + "wq_b");
  w.wkv = reader->Fp8(prefix + "wkv");
  w.q_norm = reader->Bf16Vector(prefix + "q_norm.weight");
  w.kv_norm = reader->Bf16Vector(prefix + "kv_norm.weight");
  w.sink = reader->F32Vector(prefix + "attn_sink");
  w.wo_a = reader->Fp8Groups(prefix + "wo_a", config.o_groups);
  w.wo_b = reader->Fp8(prefix + "wo_b");
  if (plan.role == LayerRole::kFull) {
    CompressorWeights c;
    c.wkv = reader->Bf16(prefix + "compressor.wkv.weight");
    if (plan.ratio > 1) c.wgate = reader->Bf16(prefix + "compressor.wgate.weight");
    c.norm = reader->Bf16Vector(prefix + "compressor.norm.weight");
    c.index_wk = reader->Bf16(prefix + "indexer.wk.weight");
    c.index_k_norm = reader->Bf16Vector(prefix + "indexer.k_norm.weight");
    w.compressor = std::move(c);
  }
  if (plan.role == LayerRole::kFull || plan.role == LayerRole::kReindex) {
    w.indexer = IndexerWeights{reader->Fp8(prefix + "indexer.wq_b"),
                               reader->Bf16(prefix + "indexer.weights_proj.weight")};
  }
  return w;
}

MoeWeights ReadMoe(WeightReader* reader, const std::string& prefix) {
  MoeWeights w;
  w.gate = reader->Bf16(prefix + "gate.weight");
  w.bias = reader->F32Vector(prefix + "gate.bias");
  const std::string shared = prefix + "shared_experts.";
  w.shared = {reader->Fp8(shared + "w1"), reader->Fp8(shared + "w2"), reader->Fp8(shared + "w3")};
  return w;
}

EngramWeights ReadEngram(WeightReader* reader, const ModelConfig& config, const std::string& prefix) {
  EngramWeights w;
  w.wkv = reader->Fp8(prefix + "wkv");
  const std::vector<float> q = reader->Bf16Vector(prefix + "q_weight");
  const std::vector<float> k = reader->Bf16Vector(prefix + "k_weight");
  const size_t hidden = static_cast<size_t>(config.hidden_size);
  for (size_t i = 0; i < q.size(); i += hidden) {
    std::vector<float> product(hidden);
    for (size_t c = 0; c < hidden; ++c) product[c] = q[i + c] * k[i + c];
    w.qk.push_back(std::move(product));
  }
  return w;
}

LayerWeights ReadLayer(WeightReader* reader, const ModelConfig& config, const LayerPlan& plan) {
  const std::string prefix = fmt::format("layers.{}.", plan.layer);
  LayerWeights w;
  w.hc_attn = ReadHyperConnection(reader, prefix + "hc_attn");
  w.hc_ffn = ReadHyperConnection(reader, prefix + "hc_ffn");
  w.attn_norm = reader->Bf16Vector(prefix + "attn_norm.weight");
  w.ffn_norm = reader->Bf16Vector(prefix + "ffn_norm.weight");
  w.attn = ReadAttention(reader, config, plan, prefix + "attn.");
  w.moe = ReadMoe(reader, prefix + "ffn.");
  if (plan.engram >= 0) w.engram = ReadEngram(reader, config, prefix + "engram.");
  return w;
}

size_t Bytes(const LayerWeights& w) {
  size_t bytes = w.hc_attn.fn.bytes() + w.hc_ffn.fn.bytes() + w.attn.wq_a.bytes() +
                 w.attn.wq_b.bytes() + w.attn.wkv.bytes() + w.attn.wo_b.bytes() + w.moe.gate.bytes() +
                 w.moe.shared.bytes();
  for (const PackedMatrix& m : w.attn.wo_a) bytes += m.bytes();
  for (const ExpertWeights& e : w.moe.experts) bytes += e.bytes();
  if (w.attn.compressor) {
    bytes += w.attn.compressor->wkv.bytes() + w.attn.compressor->index_wk.bytes();
    if (w.attn.compressor->wgate) bytes += w.attn.compressor->wgate->bytes();
  }
  if (w.attn.indexer) bytes += w.attn.indexer->wq_b.bytes() + w.attn.indexer->weights_proj.bytes();
  if (w.engram) bytes += w.engram->wkv.bytes();
  return bytes;
}

// Tells the caller of a load how far it is: of `steps` equal ones.
class LoadProgress {
 public:
  LoadProgress(const std::function<void(double)>& tell, int steps) : tell_(tell), steps_(steps) {}

  void Step() {
    const std::lock_guard lock(mutex_);
    ++done_;
    if (tell_) tell_(static_cast<double>(done_) / steps_);
  }
  void Finish() {
    const std::lock_guard lock(mutex_);
    if (tell_) tell_(1.0);
  }

 private:
  const std::function<void(double)>& tell_;
  const int steps_;
  std::mutex mutex_;
  int done_ = 0;  // guarded by mutex_
};

// What the layers do not hold.
void ReadEnds(WeightReader* reader, const Checkpoint& checkpoint, ModelWeights* w) {
  w->head = reader->Bf16("head.weight");
  checkpoint.Release("head.");
  w->embed = reader->Bf16View("embed.weight");
  checkpoint.Release("embed.");
  w->norm = reader->Bf16Vector("norm.weight");
}

// All weights but the routed experts, layers side by side.
Status ReadAlwaysUsed(const Checkpoint& checkpoint, const ModelConfig& config, const CacheLayout& layout,
                      ThreadPool* pool, LoadProgress* progress, ModelWeights* w) {
  w->layers.resize(layout.layers.size());
  std::vector<Status> results(layout.layers.size() + 1);
  std::atomic<bool> failed{false};
  const auto read = [&](size_t i) -> Status {
    WeightReader reader(checkpoint);
    if (i == 0) {  // first, because it takes longest
      ReadEnds(&reader, checkpoint, w);
    } else {
      const LayerPlan& plan = layout.layers[i - 1];
      w->layers[i - 1] = ReadLayer(&reader, config, plan);
      // Read once: else the files would take as much memory as what was made of them.
      checkpoint.Release(fmt::format("layers.{}.", plan.layer));
    }
    return reader.status();
  };
  pool->ParallelFor(static_cast<int64_t>(results.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end) && !failed; ++i) {
      try {
        results[i] = read(i);
      } catch (const std::exception& error) {  // out of memory, which must not end a thread of the pool
        results[i] = ResourceExhausted(error.what()).WithContext("the weights could not be packed");
      }
      if (!results[i].ok()) failed = true;
      progress->Step();
    }
  });
  for (const Status& result : results) EMBERKV_RETURN_IF_ERROR(result);
  return Status::Ok();
}

// Packs all of them where they fit beside what `w` holds already.
Status ReadRoutedExperts(const Checkpoint& checkpoint, const ModelConfig& config,
                         uint64_t weight_memory_bytes, ThreadPool* pool, LoadProgress* progress,
                         ModelWeights* w) {
  std::vector<int> experts(static_cast<size_t>(config.n_routed_experts));
  std::iota(experts.begin(), experts.end(), 0);
  const uint64_t budget = weight_memory_bytes - std::min<uint64_t>(weight_memory_bytes, w->bytes());
  if (RoutedExpertBytes(config) * experts.size() * w->layers.size() > budget) {
    w->streamed = std::make_unique<StreamedExperts>(checkpoint, config, budget);
    progress->Finish();
    return Status::Ok();
  }
  for (size_t layer = 0; layer < w->layers.size(); ++layer) {
    EMBERKV_ASSIGN_OR_RETURN(w->layers[layer].moe.experts,
                             ReadExperts(checkpoint, static_cast<int>(layer), experts, pool));
    progress->Step();
  }
  return Status::Ok();
}

}  // namespace

size_t ModelWeights::bytes() const {
  size_t bytes = head.bytes();
  for (const LayerWeights& layer : layers) bytes += Bytes(layer);
  return bytes;
}

Result<ModelWeights> LoadModelWeights(const Checkpoint& checkpoint, const ModelConfig& config,
                                      const CacheLayout& layout, std::vector<int32_t> token_map,
                                      const LoadOptions& options) {
  ModelWeights w;
  if (!config.engram_layer_ids.empty()) {
    EMBERKV_ASSIGN_OR_RETURN(w.engram_hash, EngramHash::Make(config, std::move(token_map)));
  }
  w.plain_rope = RopeTable(config.qk_rope_head_dim, config.rope_theta, std::nullopt);
  w.compressed_rope =
      RopeTable(config.qk_rope_head_dim, config.compress_rope_theta, config.rope_scaling);
  std::optional<ThreadPool> own;
  if (options.pool == nullptr) {
    own.emplace(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  }
  ThreadPool* const pool = own ? &*own : options.pool;
  LoadProgress progress(options.progress, 2 * layout.num_layers() + 1);
  EMBERKV_RETURN_IF_ERROR(ReadAlwaysUsed(checkpoint, config, layout, pool, &progress, &w));
  EMBERKV_RETURN_IF_ERROR(
      ReadRoutedExperts(checkpoint, config, options.weight_memory_bytes, pool, &progress, &w));
  return w;
}

}  // namespace emberkv
