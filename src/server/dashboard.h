// The dashboard: one page, web/index.html, that is part of the program and loads nothing else. What it shows it
// asks of the public routes, with the key of whoever looks at it.
//
// Pure functions over constants: any thread.
#pragma once

#include <string>
#include <string_view>

#include "server/http_message.h"

namespace emberkv {

std::string_view DashboardPage();

// Its type, and a Content-Security-Policy that lets exactly this page's style and script run, talk to this server
// only, and nobody frame it.
const HttpHeaders& DashboardHeaders();

// Of a page that has one <style> and one <script> without attributes; made public for its test.
std::string ContentSecurityPolicy(std::string_view page);

}  // namespace emberkv
