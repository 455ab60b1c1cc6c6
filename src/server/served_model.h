// The model behind the API: its engine, the name that clients call it by, and what its tokenizer can do.
//
// A plain value, made once when the server starts; any thread may read it. The engine is not owned.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"

namespace emberkv {

struct ServedModel {
  const Engine* engine = nullptr;
  std::string name;
  int64_t created = 0;           // seconds since 1970
  bool has_chat_format = false;  // the tokenizer has the tokens of the DeepSeek format; else prompts are plain text
  int32_t think_end_token = -1;  // </think>; -1 without the format
};

// As of now; the engine outlives the value.
ServedModel DescribeModel(const Engine& engine, std::string name);

}  // namespace emberkv
