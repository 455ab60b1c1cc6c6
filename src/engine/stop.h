// Stop strings over streamed text: the answer ends where one of them is completed, and neither the
// stop string nor anything after it is given out.
//
// The result does not depend on how the text is cut into pieces: the string that is completed first
// ends the text, and of those completed by the same byte the longest. One filter per answer, used by
// one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

class StopFilter {
 public:
  // Refuses an empty stop string.
  static Result<StopFilter> Make(std::vector<std::string> stop_strings);

  // The text that is certain to come before any stop string: what may begin one is held back. Gives
  // nothing once stopped.
  std::string Push(std::string_view text);

  // What is held back at the end of the text; then the filter may be used for the next text.
  std::string Finish();

  bool is_stopped() const { return is_stopped_; }

 private:
  explicit StopFilter(std::vector<std::string> stop_strings)
      : stop_strings_(std::move(stop_strings)) {}

  size_t CompletedBytes() const;
  size_t BegunBytes() const;

  std::vector<std::string> stop_strings_;
  std::string held_;  // the longest end of the text so far that begins a stop string
  bool is_stopped_ = false;
};

}  // namespace emberkv
