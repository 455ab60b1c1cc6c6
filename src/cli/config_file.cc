#include "cli/config_file.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/mapped_file.h"
#include "ledger/json_fields.h"

namespace emberkv {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

bool IsForFiles(const std::string& name) { return name != "config" && name != "help"; }

std::string AllowedNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name().substr(2);
    if (IsForFiles(name)) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status ApplyField(const std::string& name, const json& value, CLI::App* command) {
  CLI::Option* option = IsForFiles(name) ? command->get_option_no_throw("--" + name) : nullptr;
  if (option == nullptr) {
    return InvalidArgument(fmt::format("{}: no such option; allowed: {}", name, AllowedNames(*command)));
  }
  if (!value.is_string() && !value.is_number()) {
    return InvalidArgument(fmt::format("{} is {}; allowed: a text or a number", name, ShowJson(value)));
  }
  if (option->count() > 0) return Status::Ok();  // the command line wins
  try {
    option->add_result(value.is_string() ? value.get<std::string>() : value.dump());
    option->run_callback();
  } catch (const CLI::Error& error) {
    return InvalidArgument(fmt::format("{}: {}", name, error.what()));
  }
  return Status::Ok();
}

}  // namespace

Status ApplyConfigFile(const std::string& path, CLI::App* command) {
  EMBERKV_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxFileBytes));
  const Result<json> object = ParseJsonObject(text);
  if (!object.ok()) return object.status().WithContext(path);
  for (const auto& [name, value] : object->items()) {
    const Status status = ApplyField(name, value, command);
    if (!status.ok()) return status.WithContext(path);
  }
  return Status::Ok();
}

}  // namespace emberkv
