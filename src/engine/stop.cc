#include "engine/stop.h"

#include <algorithm>
#include <utility>

namespace emberkv {

Result<StopFilter> StopFilter::Make(std::vector<std::string> stop_strings) {
  for (const std::string& stop : stop_strings) {
    if (stop.empty()) return InvalidArgument("a stop string is empty; allowed: at least one byte");
  }
  return StopFilter(std::move(stop_strings));
}

// Bytes of the longest stop string that ends where held_ ends; 0 if none does.
size_t StopFilter::CompletedBytes() const {
  size_t longest = 0;
  for (const std::string& stop : stop_strings_) {
    if (held_.ends_with(stop)) longest = std::max(longest, stop.size());
  }
  return longest;
}

// Bytes of the longest end of held_ that begins a stop string without completing it.
size_t StopFilter::BegunBytes() const {
  const std::string_view held = held_;
  size_t longest = 0;
  for (const std::string_view stop : stop_strings_) {
    for (size_t n = std::min(held.size(), stop.size() - 1); n > longest; --n) {
      if (held.ends_with(stop.substr(0, n))) longest = n;
    }
  }
  return longest;
}

std::string StopFilter::Push(std::string_view text) {
  if (is_stopped_) return "";
  if (stop_strings_.empty()) return std::string(text);
  std::string certain;
  for (const char byte : text) {
    held_ += byte;
    const size_t completed = CompletedBytes();
    const size_t kept = completed > 0 ? completed : BegunBytes();
    certain.append(held_, 0, held_.size() - kept);
    held_.erase(0, held_.size() - kept);
    if (completed > 0) {
      held_.clear();
      is_stopped_ = true;
      break;
    }
  }
  return certain;
}

std::string StopFilter::Finish() {
  is_stopped_ = false;
  return std::exchange(held_, "");
}

}  // namespace emberkv
