// A command-line option whose text is turned into a value by a function that can refuse it.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace emberkv {

// *field = parse(text); text that `parse` refuses is a usage error. `field` must outlive the parse;
// it may be a T or an optional<T>.
template <typename Field, typename T>
CLI::Option* AddParsedOption(CLI::App& command, const std::string& name, Field* field,
                             Result<T> (*parse)(std::string_view), const std::string& description) {
  return command.add_option_function<std::string>(
      name,
      [name, field, parse](const std::string& text) {
        Result<T> value = parse(text);
        if (!value.ok()) throw CLI::ValidationError(name, value.status().message());
        *field = *value;
      },
      description);
}

}  // namespace emberkv
