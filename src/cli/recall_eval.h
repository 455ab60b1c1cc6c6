// Recall prompts and their score: long texts that end in a question about a fact planted in them.
//
// Plain values and pure functions, used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

struct RecallPrompt {
  std::string id;
  int64_t tokens = 0;
  std::string place;  // of the fact: "start", "depth:0.25", ...
  std::string prompt;
  std::string expected;
  std::vector<int32_t> expected_ids;
};

// Reads a file of one JSON object per line with the fields above; others are ignored. Refusals name
// the line.
Result<std::vector<RecallPrompt>> ParseRecallPrompts(std::string_view text);

// "depth:0.25" and "depth:0.9" count as one place, "depth:*".
std::string PlaceGroup(std::string_view place);

class RecallScore {
 public:
  struct Tally {
    int64_t prompts = 0;
    int64_t exact = 0;
  };

  void Add(const RecallPrompt& prompt, bool is_exact);

  const Tally& total() const { return total_; }
  std::string Table() const;                      // aligned, by length and by place
  std::string SummaryLine(double seconds) const;  // JSON

 private:
  Tally total_;
  std::map<int64_t, Tally> by_length_;
  std::map<std::string, Tally> by_place_;
};

}  // namespace emberkv
