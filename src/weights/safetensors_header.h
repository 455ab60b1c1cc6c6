// The JSON header of a safetensors file as it stands there: well formed, its values not yet judged.
//
// Private to the room: safetensors.cc is the caller. Pure functions; any thread may call them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct HeaderEntry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;  // no negative entry
  uint64_t begin = 0;          // data_offsets, within the data section
  uint64_t end = 0;
};

struct HeaderEntries {
  std::vector<HeaderEntry> entries;  // in the order of the text; names may repeat
  std::map<std::string, std::string> metadata;
};

// One pass without a document tree, so a hostile header costs no more memory than its own entries.
// Never throws.
Result<HeaderEntries> ParseHeaderJson(std::string_view json);

// `name` in quotes, fit for a message: cut to a sane length, control characters replaced.
std::string Quoted(std::string_view name);

}  // namespace emberkv
