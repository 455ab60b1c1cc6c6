// The server's routes: which method and path is answered by what, for whom, and on which kind of thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "server/api_call.h"
#include "server/serving.h"

namespace emberkv {

enum class Access {
  kOpen,      // everybody, without a key
  kTenant,    // whoever has a key
  kOperator,  // tenants that the keys file calls operators: it tells about all of them
};

struct Route {
  std::string_view method;
  std::string_view path;
  Access access;
  bool is_instant;  // answered on the io thread
  void (*answer)(const std::shared_ptr<ApiCall>& call, Serving* serving);
};

// What a method and a path lead to. HEAD is answered as GET.
struct RouteMatch {
  const Route* route = nullptr;  // null: see allowed_methods
  std::string allowed_methods;   // for a 405; empty: no such path
};

RouteMatch FindRoute(std::string_view method, std::string_view path);

}  // namespace emberkv
