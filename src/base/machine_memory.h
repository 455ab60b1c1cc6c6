// How much memory the machine has. Any thread.
#pragma once

#include <cstdint>

namespace emberkv {

// Bytes; 0 when the system does not tell.
uint64_t MachineMemoryBytes();

}  // namespace emberkv
