// Where the routed experts of a model are, and what reading them took. A plain value.
#pragma once

#include <cstdint>

namespace emberkv {

struct ExpertStats {
  bool is_streamed = false;  // not all fit: read from the checkpoint's files when the router chooses them
  uint64_t total_bytes = 0;  // of all routed experts, packed
  uint64_t most_bytes = 0;   // in memory at most, those in use included
  uint64_t kept_bytes = 0;   // in memory now
  uint64_t uses = 0;         // of streamed experts by a layer of a step, however many rows share it
  uint64_t reads = 0;        // those of `uses` for which the expert had to be read
};

}  // namespace emberkv
