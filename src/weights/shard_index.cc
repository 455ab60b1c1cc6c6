#include "weights/shard_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "weights/safetensors_header.h"

namespace emberkv {
namespace {

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
constexpr size_t kMaxShards = 4096;

bool IsPlainFileName(std::string_view name) {
  constexpr std::string_view kSuffix = ".safetensors";
  if (name.size() <= kSuffix.size() || name.size() > 255) return false;
  if (name.front() == '.' || !name.ends_with(kSuffix)) return false;
  if (name.find("..") != std::string_view::npos) return false;
  return std::none_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
  });
}

Result<ShardIndex> Parse(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text.begin(), text.end(), nullptr,
                                                    /*allow_exceptions=*/false);
  if (json.is_discarded()) return DataLoss("not JSON");
  const auto weight_map = json.is_object() ? json.find("weight_map") : json.end();
  if (weight_map == json.end() || !weight_map->is_object()) {
    return DataLoss("weight_map is missing or not an object");
  }
  ShardIndex index;
  std::map<std::string, uint32_t> shard_ids;
  for (const auto& [tensor, shard] : weight_map->items()) {
    const auto* name = shard.get_ptr<const std::string*>();
    if (name == nullptr) {
      return DataLoss(fmt::format("weight_map: the shard of {} is not a string", Quoted(tensor)));
    }
    if (!IsPlainFileName(*name)) {
      return DataLoss(fmt::format(
          "weight_map: the shard of {} is {}; allowed: a plain file name ending in .safetensors",
          Quoted(tensor), Quoted(*name)));
    }
    shard_ids.emplace(*name, 0);
  }
  if (shard_ids.empty()) return DataLoss("weight_map names no tensor");
  if (shard_ids.size() > kMaxShards) {
    return DataLoss(fmt::format("weight_map names {} shards; at most {} are handled",
                                shard_ids.size(), kMaxShards));
  }
  for (auto& [name, id] : shard_ids) {
    id = static_cast<uint32_t>(index.shards.size());
    index.shards.push_back(name);
  }
  index.tensors.reserve(weight_map->size());
  for (const auto& [tensor, shard] : weight_map->items()) {
    index.tensors.emplace_back(tensor, shard_ids.at(*shard.get_ptr<const std::string*>()));
  }
  std::sort(index.tensors.begin(), index.tensors.end());
  return index;
}

}  // namespace

Result<ShardIndex> ParseShardIndex(std::string_view json, const std::string& path) {
  Result<ShardIndex> index = Parse(json);
  if (!index.ok()) return index.status().WithContext(path);
  return index;
}

Result<ShardIndex> ReadShardIndex(const std::string& path) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxIndexBytes));
  return ParseShardIndex(text, path);
}

}  // namespace emberkv
