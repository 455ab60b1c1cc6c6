// The bytes of answers, made by Boost.Beast: heads and chunks. Pure functions, any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace emberkv {

// What an answer must respect of the request it belongs to.
struct HttpResponseShape {
  bool is_http_1_0 = false;  // no chunks: the end of the connection ends a stream
  bool is_head = false;      // the head goes out, the body does not
  bool keep_alive = true;
};

// Head with the length of the body, or without one of a stream (chunked, unless HTTP/1.0). Headers that
// would break the head (line ends or other control characters in them) are left out.
std::string HttpResponseHead(int status, const HttpHeaders& headers, const HttpResponseShape& shape,
                             std::optional<size_t> content_length);
bool StatusHasBody(int status);

std::string HttpChunk(std::string_view text);
std::string HttpLastChunk();
std::string HttpContinue();

}  // namespace emberkv
