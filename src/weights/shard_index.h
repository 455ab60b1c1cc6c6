// model.safetensors.index.json: which shard holds which tensor.
//
// The index is untrusted: a shard must be a plain file name, so that it cannot reach outside its
// folder. Pure functions over plain values; any thread may call them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace emberkv {

inline constexpr const char* kShardIndexName = "model.safetensors.index.json";

struct ShardIndex {
  std::vector<std::string> shards;                        // sorted, each once
  std::vector<std::pair<std::string, uint32_t>> tensors;  // name and index into shards, by name
};

// `path` only names the text in errors. Never throws.
Result<ShardIndex> ParseShardIndex(std::string_view json, const std::string& path);

Result<ShardIndex> ReadShardIndex(const std::string& path);

}  // namespace emberkv
