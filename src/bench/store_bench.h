// The local store against the disk it lies on and against RocksDB alone.
//
// Each round probes what the disk gives (direct overwriting in 1-MiB pieces, direct random reads of a record, 8
// at a time), then puts and gets pages of 113,920 incompressible bytes through the local store and through
// RocksDB BlobDB with its log. Used by one thread. Fills and empties a folder of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/measurement.h"

namespace emberkv {

// `gigabytes` of pages, and `index_entries` more in the index, without bytes of their own, when the store is
// opened: 10 GB and 10^7 entries show how opening grows.
Result<std::vector<Measurement>> BenchStore(const std::string& directory, double gigabytes,
                                            uint64_t index_entries, int rounds);

}  // namespace emberkv
