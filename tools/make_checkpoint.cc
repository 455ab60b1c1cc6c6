// Writes a random checkpoint of any geometry in the released format: what `emberkv bench model` and tests of
// large shapes run on. It answers nothing sensible, but its activations are of ordinary size.
//
//   make_checkpoint CONFIG_JSON OUT_DIR [--seed N]
//
// Every tensor that the config demands (weights/inventory.h) gets values whose products keep the scale of their
// input; norms are ones. tests/data/configs/v41_shape.json has the released model's shapes with 6 routed experts
// instead of 384, so that the top 6 do the released work per token, and small Engram tables: 11 GB.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "layout/model_config.h"
#include "weights/inventory.h"

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr int64_t kShardBytes = int64_t{4} << 30;
constexpr uintmax_t kSpareBytes = uintmax_t{1} << 30;  // left free on the disk
constexpr int64_t kTableValues = 1 << 20;
constexpr size_t kBufferBytes = size_t{8} << 20;

// Random bytes quickly: a large table of bytes from the wanted distribution, read at random places.
class ByteSource {
 public:
  ByteSource(std::vector<uint8_t> values, size_t value_bytes, uint64_t seed)
      : values_(std::move(values)), value_bytes_(value_bytes), bits_(seed) {}

  void Fill(uint8_t* out, size_t bytes) {
    const size_t num_values = values_.size() / value_bytes_;
    while (bytes > 0) {
      const size_t at = bits_() % num_values;
      const size_t run = std::min({bytes, (num_values - at) * value_bytes_, size_t{4096}});
      std::copy_n(values_.data() + at * value_bytes_, run, out);
      out += run;
      bytes -= run;
    }
  }

 private:
  std::vector<uint8_t> values_;
  size_t value_bytes_;
  std::mt19937_64 bits_;
};

std::vector<uint8_t> Repeated(std::vector<uint8_t> value) {
  std::vector<uint8_t> values;
  for (int i = 0; i < 8192; ++i) values.insert(values.end(), value.begin(), value.end());
  return values;
}

template <class T>
std::vector<uint8_t> BytesOf(T value) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&value);
  return {bytes, bytes + sizeof value};
}

std::vector<uint8_t> Bf16Bytes(float value) { return BytesOf(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16)); }

// `count` values at most: a small tensor needs no large table.
std::vector<uint8_t> Normals(DType dtype, double deviation, int64_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  std::vector<uint8_t> values;
  for (int64_t i = 0; i < std::min(count, kTableValues); ++i) {
    const float value = normal(bits);
    const std::vector<uint8_t> bytes = dtype == DType::kF32 ? BytesOf(value) : Bf16Bytes(value);
    values.insert(values.end(), bytes.begin(), bytes.end());
  }
  return values;
}

// e4m3 codes of magnitudes 0.25 to 1.875, standard deviation about 0.9.
std::vector<uint8_t> Fp8Codes(int64_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::vector<uint8_t> values(static_cast<size_t>(std::min(count, kTableValues)));
  for (uint8_t& value : values) {
    const uint64_t draw = bits();
    value = static_cast<uint8_t>((draw & 0x80) | ((5 + (draw >> 8) % 3) << 3) | (draw & 7));
  }
  return values;
}

std::vector<uint8_t> RandomBytes(int64_t count, uint64_t seed) {
  std::mt19937_64 bits(seed);
  std::vector<uint8_t> values(static_cast<size_t>(std::min(count, kTableValues)));
  for (uint8_t& value : values) value = static_cast<uint8_t>(bits());
  return values;
}

constexpr double kFp8Deviation = 0.9;
constexpr double kFp4Deviation = 2.9;  // of uniform e2m1 codes

// The e8m0 code that brings codes of `deviation` to 1 / sqrt(inputs).
uint8_t ScaleCode(double deviation, int64_t inputs) {
  return static_cast<uint8_t>(127 + std::lround(std::log2(1 / std::sqrt(static_cast<double>(inputs)) / deviation)));
}

int64_t BytesOfTensor(const TensorSpec& spec) {
  int64_t bytes = static_cast<int64_t>(DTypeBytes(spec.dtype));
  for (const int64_t extent : spec.shape) bytes *= extent;
  return bytes;
}

// Where the values of a tensor come from. `spec` is one that Inventory demands.
ByteSource SourceOf(const TensorSpec& spec, const Inventory& inventory, uint64_t seed) {
  const auto ends = [&](std::string_view end) { return spec.name.ends_with(end); };
  const size_t bytes = DTypeBytes(spec.dtype);
  const int64_t count = BytesOfTensor(spec) / static_cast<int64_t>(bytes);
  switch (spec.dtype) {
    case DType::kF8E4M3:
      return {Fp8Codes(count, seed), 1, seed};
    case DType::kI8:
      return {RandomBytes(count, seed), 1, seed};
    case DType::kF8E8M0: {
      const std::string weight = spec.name.substr(0, spec.name.size() - std::string_view("scale").size()) + "weight";
      const TensorSpec* of = inventory.Find(weight);
      const bool is_fp4 = of != nullptr && of->dtype == DType::kI8;
      const int64_t inputs = of == nullptr ? 1 : of->shape.back() * (is_fp4 ? 2 : 1);
      const bool is_table = of != nullptr && of->family == TensorFamily::kEngramTable;
      return {Repeated({is_table ? uint8_t{124} : ScaleCode(is_fp4 ? kFp4Deviation : kFp8Deviation, inputs)}), 1, seed};
    }
    case DType::kBF16:
      if (spec.shape.size() == 1 || ends("q_weight") || ends("k_weight")) return {Repeated(Bf16Bytes(1)), bytes, seed};
      if (ends("embed.weight")) return {Normals(spec.dtype, 1, count, seed), bytes, seed};
      break;
    default:
      if (spec.shape.size() == 1) return {Repeated(BytesOf(ends("scale") ? 1.0f : 0.0f)), bytes, seed};
      break;
  }
  return {Normals(spec.dtype, 1 / std::sqrt(static_cast<double>(spec.shape.back())), count, seed), bytes, seed};
}

std::string HeaderOf(const std::vector<const TensorSpec*>& tensors) {
  Json header = Json::object();
  int64_t at = 0;
  for (const TensorSpec* spec : tensors) {
    const int64_t end = at + BytesOfTensor(*spec);
    header[spec->name] = {{"dtype", DTypeName(spec->dtype)}, {"shape", spec->shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

class ShardWriter {
 public:
  ShardWriter(const Inventory& inventory, uint64_t seed, int64_t total_bytes)
      : inventory_(inventory), seed_(seed), total_bytes_(total_bytes), buffer_(kBufferBytes) {}

  bool Write(const fs::path& path, const std::vector<const TensorSpec*>& tensors) {
    std::ofstream file(path, std::ios::binary);
    const std::string header = HeaderOf(tensors);
    const uint64_t header_bytes = header.size();
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes);
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const TensorSpec* spec : tensors) {
      ByteSource source = SourceOf(*spec, inventory_, ++seed_);
      for (int64_t left = BytesOfTensor(*spec); left > 0;) {
        const size_t piece = static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(buffer_.size())));
        source.Fill(buffer_.data(), piece);
        file.write(reinterpret_cast<const char*>(buffer_.data()), static_cast<std::streamsize>(piece));
        left -= static_cast<int64_t>(piece);
        ShowProgress(static_cast<int64_t>(piece));
      }
    }
    return file.good();
  }

 private:
  void ShowProgress(int64_t bytes) {
    const int64_t before = written_ * 100 / total_bytes_;
    written_ += bytes;
    const int64_t now = written_ * 100 / total_bytes_;
    if (now != before && isatty(STDERR_FILENO)) fmt::print(stderr, "\r{} % of {:.1f} GB ", now, static_cast<double>(total_bytes_) / 1e9);
  }

  const Inventory& inventory_;
  uint64_t seed_;
  const int64_t total_bytes_;
  int64_t written_ = 0;
  std::vector<uint8_t> buffer_;
};

// Compressed ids by token id, as many different ones as the config says.
Json TokenMapOf(const ModelConfig& config) {
  Json ids = Json::array();
  for (int i = 0; i < config.vocab_size; ++i) ids.push_back(i % static_cast<int>(config.engram_compressed_vocab_size));
  return ids;
}

Status WriteText(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return file.good() ? Status::Ok() : Unavailable("cannot write " + path.string());
}

Status MakeCheckpoint(const std::string& config_file, const fs::path& out, uint64_t seed) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(config_file, uint64_t{1} << 24));
  EMBERKV_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text));
  EMBERKV_ASSIGN_OR_RETURN(const Inventory inventory, Inventory::Make(config));
  std::error_code error;
  fs::create_directories(out, error);
  if (error) return Unavailable(fmt::format("cannot make {}: {}", out.string(), error.message()));
  EMBERKV_RETURN_IF_ERROR(WriteText(out / "config.json", text));
  if (!config.engram_layer_ids.empty()) {
    EMBERKV_RETURN_IF_ERROR(WriteText(out / "token_map.json", TokenMapOf(config).dump()));
  }

  std::vector<std::vector<const TensorSpec*>> shards(1);
  int64_t total = 0, in_shard = 0;
  for (const TensorSpec& spec : inventory.tensors()) {
    const int64_t bytes = BytesOfTensor(spec);
    if (in_shard > 0 && in_shard + bytes > kShardBytes) {
      shards.emplace_back();
      in_shard = 0;
    }
    shards.back().push_back(&spec);
    in_shard += bytes;
    total += bytes;
  }
  const fs::space_info space = fs::space(out, error);
  if (!error && space.available < static_cast<uintmax_t>(total) + kSpareBytes) {
    return ResourceExhausted(fmt::format("the checkpoint has {:.1f} GB and the disk of {} has {:.1f} GB free",
                                         static_cast<double>(total) / 1e9, out.string(),
                                         static_cast<double>(space.available) / 1e9));
  }
  Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", Json::object()}};
  ShardWriter writer(inventory, seed, total);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const TensorSpec* spec : shards[i]) index["weight_map"][spec->name] = name;
    if (!writer.Write(out / name, shards[i])) return Unavailable("cannot write " + (out / name).string());
  }
  EMBERKV_RETURN_IF_ERROR(WriteText(out / "model.safetensors.index.json", index.dump()));
  fmt::print("{}: {} tensors, {:.2f} GB in {} shards\n", out.string(), inventory.tensors().size(),
             static_cast<double>(total) / 1e9, shards.size());
  return Status::Ok();
}

}  // namespace
}  // namespace emberkv

int main(int argc, char** argv) {
  CLI::App app("Writes a random checkpoint of any geometry in the released format.");
  std::string config, out;
  uint64_t seed = 1;
  app.add_option("config", config, "config.json of the wanted shapes")->required();
  app.add_option("out", out, "folder to write into")->required();
  app.add_option("--seed", seed, "of the random values")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const emberkv::Status status = emberkv::MakeCheckpoint(config, out, seed);
  if (!status.ok()) fmt::print(stderr, "make_checkpoint: {}\n", status.message());
  return status.ok() ? 0 : 1;
}
