// Rows of text in aligned columns: two spaces of indent, two between columns, no colour.
//
// A plain value; owned and used by one thread.
#pragma once

#include <string>
#include <vector>

namespace emberkv {

class TextTable {
 public:
  // One letter per column: 'l' aligns left, 'r' right.
  explicit TextTable(std::string alignment) : alignment_(std::move(alignment)) {}

  // Cells beyond the row's end are empty.
  void AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Lines without trailing spaces, each ended by a newline.
  std::string ToString() const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace emberkv
