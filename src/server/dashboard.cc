#include "server/dashboard.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/sha.h>

#include <array>

namespace emberkv {

extern const std::string_view kDashboardPage;  // made of web/index.html by the build

namespace {

std::string_view ContentOf(std::string_view page, std::string_view element) {
  const std::string begin_tag = fmt::format("<{}>", element);
  const size_t begin = page.find(begin_tag);
  const size_t end = page.find(fmt::format("</{}>", element), begin);
  if (begin == page.npos || end == page.npos) return {};
  return page.substr(begin + begin_tag.size(), end - begin - begin_tag.size());
}

std::string HashSource(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  std::array<unsigned char, 4 * ((SHA256_DIGEST_LENGTH + 2) / 3) + 1> base64;
  const int length = EVP_EncodeBlock(base64.data(), digest.data(), static_cast<int>(digest.size()));
  return fmt::format("'sha256-{}'", std::string_view(reinterpret_cast<const char*>(base64.data()), length));
}

}  // namespace

std::string ContentSecurityPolicy(std::string_view page) {
  return fmt::format(
      "default-src 'none'; script-src {}; style-src {}; connect-src 'self'; img-src data:; base-uri 'none'; "
      "form-action 'none'; frame-ancestors 'none'",
      HashSource(ContentOf(page, "script")), HashSource(ContentOf(page, "style")));
}

std::string_view DashboardPage() { return kDashboardPage; }

const HttpHeaders& DashboardHeaders() {
  static const HttpHeaders headers = {{"Content-Type", "text/html; charset=utf-8"},
                                      {"Content-Security-Policy", ContentSecurityPolicy(kDashboardPage)},
                                      {"Cache-Control", "no-cache"},
                                      {"Referrer-Policy", "no-referrer"},
                                      {"X-Content-Type-Options", "nosniff"}};
  return headers;
}

}  // namespace emberkv
