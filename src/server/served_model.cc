#include "server/served_model.h"

#include <chrono>
#include <utility>

#include "prompt/special_tokens.h"

namespace emberkv {
namespace {

// The token that the text is; -1 where it is none, or several.
int32_t TokenOf(const Engine& engine, std::string_view text) {
  const Result<std::vector<int32_t>> ids = engine.Encode(text);
  return ids.ok() && ids->size() == 1 ? ids->front() : -1;
}

}  // namespace

ServedModel DescribeModel(const Engine& engine, std::string name) {
  ServedModel model;
  model.engine = &engine;
  model.name = std::move(name);
  model.created = std::chrono::duration_cast<std::chrono::seconds>(
                      std::chrono::system_clock::now().time_since_epoch())
                      .count();
  model.has_chat_format = true;
  for (const std::string_view token :
       {kBosText, kEosText, kSystemText, kUserText, kAssistantText, kThinkBegin, kThinkEnd}) {
    if (TokenOf(engine, token) < 0) model.has_chat_format = false;
  }
  if (model.has_chat_format) model.think_end_token = TokenOf(engine, kThinkEnd);
  return model;
}

}  // namespace emberkv
