// The text that a first prompt is made of: documents, then the prompt on a line of its own.
//
// Used by the command's one thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace emberkv {

// The files as they are, one after the other.
Result<std::string> ReadDocuments(const std::vector<std::string>& files);

// Whether a newline goes between `before`, which may be empty, and the prompt.
bool StartsNewLine(std::string_view before, bool is_first, std::string_view prompt);

// A first prompt with the documents before it.
std::string FirstText(const std::string& documents, const std::string& prompt);

}  // namespace emberkv
