// What the engine's tests share: the shipped model, its recall prompts, and a session's bytes.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace emberkv {

inline const std::string kEmberTiny = EMBERKV_SOURCE_DIR "/models/ember-tiny";

struct RecallPrompt {
  std::string text;
  std::string expected;
  std::vector<int32_t> expected_ids;
};

// The prompts of `tokens` tokens (512 or 2,048) in the order of the model's eval_prompts.jsonl.
const std::vector<RecallPrompt>& RecallPrompts(int tokens);

// Options for small tests: `threads`, `chunk`, and a pool of 16 MiB.
EngineOptions TinyOptions(int threads = 2, int chunk = 512);

std::unique_ptr<Engine> LoadTiny(const EngineOptions& options = TinyOptions());

// One engine with TinyOptions() for all tests that do not care.
Engine& SharedTiny();

std::unique_ptr<Session> Open(const Engine& engine);

// The first `count` tokens of the 2,048-token prompt number `index`.
std::vector<int32_t> PromptTokens(size_t count, size_t index = 0);

// Everything a session has computed, to be compared with ==.
struct SessionBytes {
  std::vector<float> logits;
  std::vector<uint8_t> pages;
  std::vector<uint8_t> windows;
  std::vector<float> tails;
};
SessionBytes BytesOf(const Session& session);

// Asserts that all parts are equal bit for bit; says which are not.
void ExpectSameBytes(const SessionBytes& a, const SessionBytes& b, const std::string& what);

inline Status PrefillAs(Session& session, const std::vector<int32_t>& tokens, ReplayMode replay) {
  PrefillOptions options;
  options.replay = replay;
  return session.Prefill(tokens, options);
}

}  // namespace emberkv
