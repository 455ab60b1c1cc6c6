// Any bytes given as a safetensors file: refused with a message, or views that lie within the
// bytes.
#include <cstdint>
#include <cstdlib>
#include <span>

#include "weights/safetensors.h"
#include "weights/shard_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> file(data, size);
  const auto contents = emberkv::ParseSafetensors(file, "fuzz");
  if (contents.ok()) {
    const uint8_t* end = data + size;
    for (const emberkv::TensorView& tensor : contents->tensors) {
      if (tensor.bytes.data() < data || tensor.bytes.data() + tensor.bytes.size() > end ||
          tensor.bytes.data() != data + tensor.file_offset) {
        std::abort();
      }
    }
  } else if (contents.status().message().empty()) {
    std::abort();
  }

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = emberkv::ParseShardIndex(text, "fuzz");
  if (index.ok()) {
    for (const std::string& shard : index->shards) {
      if (shard.find('/') != std::string::npos || shard.find("..") != std::string::npos) {
        std::abort();
      }
    }
  }
  return 0;
}
