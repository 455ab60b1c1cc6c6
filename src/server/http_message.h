// What a client asked: one HTTP request, read whole. A plain value; const access is free on any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace emberkv {

// In order, names as written; a name may occur more than once.
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method{};
  std::string path{};   // as sent, percent signs included
  std::string query{};  // what follows the first '?', without it
  HttpHeaders headers{};
  std::string body{};
  std::string peer_address{};  // of the client's socket: "127.0.0.1", "::1"

  // The first header of that name; names are compared without regard to case.
  std::optional<std::string_view> Header(std::string_view name) const;
};

// Whether two texts are equal up to the case of ASCII letters.
bool EqualsIgnoringCase(std::string_view a, std::string_view b);

}  // namespace emberkv
