// One line on the terminal that is written over and over: how far something is. Silent where stderr
// is no terminal.
//
// Used by one thread.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace emberkv {

class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows `text` unless another was shown less than a tenth of a second ago.
  void Show(const std::string& text);
  void Clear();

 private:
  const bool is_terminal_;
  std::optional<std::chrono::steady_clock::time_point> shown_at_;  // while something is shown
};

}  // namespace emberkv
