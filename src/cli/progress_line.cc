#include "cli/progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace emberkv {

ProgressLine::ProgressLine() : is_terminal_(isatty(STDERR_FILENO) == 1) {}

void ProgressLine::Show(const std::string& text) {
  if (!is_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (shown_at_ && now - *shown_at_ < std::chrono::milliseconds(100)) return;
  shown_at_ = now;
  fmt::print(stderr, "\r{}\x1b[K", text);
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (!shown_at_) return;
  shown_at_.reset();
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
}

}  // namespace emberkv
