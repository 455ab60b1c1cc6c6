#include "cli/text_table.h"

#include <algorithm>

namespace emberkv {

std::string TextTable::ToString() const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < std::min(row.size(), widths.size()); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      line += "  ";
      line += alignment_[i] == 'r' ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace emberkv
