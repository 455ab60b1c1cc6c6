#include "server/http_response.h"

#include <algorithm>
#include <ctime>
#include <sstream>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/http.hpp>

namespace emberkv {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && byte != '\t') || byte == 0x7f;
  });
}

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[64];
  return std::string(text, std::strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &utc));
}

std::string HeadText(const http::header<false>& head) {
  std::ostringstream out;
  out << head;
  return out.str();
}

}  // namespace

bool StatusHasBody(int status) { return status >= 200 && status != 204 && status != 304; }

std::string HttpResponseHead(int status, const HttpHeaders& headers, const HttpResponseShape& shape,
                             std::optional<size_t> content_length) {
  http::response<http::empty_body> response;
  response.version(shape.is_http_1_0 ? 10 : 11);
  response.result(static_cast<unsigned>(status));
  response.set(http::field::date, DateNow());
  for (const auto& [name, value] : headers) {
    if (name.empty() || HasControlCharacter(name) || HasControlCharacter(value)) continue;
    response.insert(name, value);
  }
  response.keep_alive(shape.keep_alive);
  if (!StatusHasBody(status)) {
    response.content_length(boost::none);
  } else if (content_length) {
    response.content_length(*content_length);
  } else {
    response.chunked(!shape.is_http_1_0);
  }
  return HeadText(response.base());
}

std::string HttpChunk(std::string_view text) {
  return beast::buffers_to_string(http::make_chunk(boost::asio::buffer(text.data(), text.size())));
}

std::string HttpLastChunk() { return beast::buffers_to_string(http::make_chunk_last()); }

std::string HttpContinue() {
  return HeadText(http::response<http::empty_body>(http::status::continue_, 11).base());
}

}  // namespace emberkv
