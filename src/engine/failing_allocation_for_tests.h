// Memory that runs out on demand. Linked into a test, it replaces the global operator new.
#pragma once

namespace emberkv {

// The allocation of the calling thread that throws std::bad_alloc, counted from when it is set; 0: none. Back
// at 0 once it has.
extern thread_local int g_failing_allocation;

}  // namespace emberkv
