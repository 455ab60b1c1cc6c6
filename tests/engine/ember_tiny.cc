#include "ember_tiny.h"

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

namespace emberkv {
namespace {

std::map<int, std::vector<RecallPrompt>> ReadRecallPrompts() {
  std::map<int, std::vector<RecallPrompt>> prompts;
  std::ifstream file(kEmberTiny + "/eval_prompts.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line);
    if (json["tokens"] > 2048) continue;
    prompts[json["tokens"]].push_back({json["prompt"], json["expected"], json["expected_ids"]});
  }
  return prompts;
}

}  // namespace

const std::vector<RecallPrompt>& RecallPrompts(int tokens) {
  static const auto* const kPrompts =
      new std::map<int, std::vector<RecallPrompt>>(ReadRecallPrompts());
  return kPrompts->at(tokens);
}

EngineOptions TinyOptions(int threads, int chunk) {
  EngineOptions options;
  options.model_dir = kEmberTiny;
  options.num_threads = threads;
  options.prefill_chunk = chunk;
  options.kv_budget_bytes = size_t{16} << 20;
  return options;
}

std::unique_ptr<Engine> LoadTiny(const EngineOptions& options) {
  auto engine = Engine::Load(options);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

Engine& SharedTiny() {
  static const std::unique_ptr<Engine> kEngine = LoadTiny();
  return *kEngine;
}

std::unique_ptr<Session> Open(const Engine& engine) {
  SessionOptions alone;  // equalities are of computing, not of what other tests left in the caches
  alone.reuses_prefixes = false;
  auto session = engine.OpenSession(alone);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return std::move(session).value();
}

std::vector<int32_t> PromptTokens(size_t count, size_t index) {
  auto ids = SharedTiny().Encode(RecallPrompts(2048).at(index).text);
  EXPECT_TRUE(ids.ok() && ids->size() >= count);
  ids->resize(count);
  return *ids;
}

SessionBytes BytesOf(const Session& session) {
  SessionBytes bytes;
  bytes.logits.assign(session.logits().begin(), session.logits().end());
  for (int64_t block = 0; block < session.stats().pages; ++block) {
    const auto page = session.page(static_cast<size_t>(block));
    bytes.pages.insert(bytes.pages.end(), page.begin(), page.end());
  }
  bytes.windows.assign(session.windows().begin(), session.windows().end());
  bytes.tails.assign(session.tails().begin(), session.tails().end());
  return bytes;
}

namespace {

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

void ExpectSameBytes(const SessionBytes& a, const SessionBytes& b, const std::string& what) {
  EXPECT_FALSE(a.logits.empty() || a.pages.empty() || a.windows.empty() || a.tails.empty());
  EXPECT_TRUE(SameBits(a.logits, b.logits)) << "logits differ: " << what;
  EXPECT_TRUE(SameBits(a.pages, b.pages)) << "pages differ: " << what;
  EXPECT_TRUE(SameBits(a.windows, b.windows)) << "windows differ: " << what;
  EXPECT_TRUE(SameBits(a.tails, b.tails)) << "tails differ: " << what;
}

}  // namespace emberkv
