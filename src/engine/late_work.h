// Work that may hang with a disk, and is waited for no longer than it is worth.
//
// Any thread may call. Work that is late goes on by itself, on a thread of its own, until it ends or the
// process does: it owns all that it touches.
#pragma once

#include <chrono>
#include <functional>

namespace emberkv {

// Runs `work`, which does not throw, and waits for its end until `deadline`. Whether it came. What `work`
// owns ends with it, on its thread.
bool FinishBy(std::chrono::steady_clock::time_point deadline, std::function<void()> work);

}  // namespace emberkv
