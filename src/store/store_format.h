// The text files of a store directory: FORMAT, which makes it a store and says which version wrote it, and
// SETTINGS, which keeps what the store was last opened with.
//
// Called by whoever opens a store, one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace emberkv {

inline constexpr uint32_t kStoreFormatVersion = 2;
// Read and upgraded when it is opened.
inline constexpr uint32_t kOldestStoreFormatVersion = 1;

// Makes the directory if its parent is there. Refuses one that holds other things than a store.
Status PrepareStoreDirectory(const std::string& directory);

struct StoreFormat {
  uint32_t version = kStoreFormatVersion;
  uint64_t segment_bytes = 0;
};
// That of the store; a new one gets `segment_bytes`. Refuses unknown versions. The caller of either holds the
// directory's lock.
Result<StoreFormat> ReadOrWriteFormat(const std::string& directory, uint64_t segment_bytes);
Status WriteFormat(const std::string& directory, const StoreFormat& format);

// What may change each time the store is opened.
struct StoreSettings {
  uint64_t budget_bytes = 0;
  std::chrono::microseconds retention = std::chrono::hours(72);

  bool operator==(const StoreSettings&) const = default;
};
// kNotFound: none are recorded. The caller of either holds the directory's lock.
Result<StoreSettings> ReadSettings(const std::string& directory);
Status WriteSettings(const std::string& directory, const StoreSettings& settings);

}  // namespace emberkv
