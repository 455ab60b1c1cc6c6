// What makes a directory a store: its FORMAT file, a few lines of text that say which version wrote it.
//
// Called by whoever opens a store, one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace emberkv {

inline constexpr uint32_t kStoreFormatVersion = 1;

// Makes the directory if its parent is there. Refuses one that holds other things than a store.
Status PrepareStoreDirectory(const std::string& directory);

// The segment size of the store; a new one gets `segment_bytes`. Refuses unknown versions. The caller
// holds the directory's lock.
Result<uint64_t> ReadOrWriteFormat(const std::string& directory, uint64_t segment_bytes);

}  // namespace emberkv
