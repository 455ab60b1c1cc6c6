#include "bench/resume_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <utility>

#include "base/clock.h"
#include "store/local_store.h"

namespace emberkv {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSessionTokens = 100'000;
constexpr size_t kPageBytes = 113'920;  // of the released layout: `emberkv plan`
constexpr int kBlock = 128;
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kAlignment = 4096;
constexpr int64_t kAnswerTokens = 64;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<int32_t> RandomIds(const Engine& engine, int64_t count) {
  std::mt19937 bits(1);
  const uint32_t ordinary = static_cast<uint32_t>(engine.config().vocab_size) - 64;
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(16 + bits() % (ordinary - 16)));
  return ids;
}

Result<FirstToken> TimeFirstToken(const Engine& engine, const std::vector<int32_t>& ids, std::string state) {
  EMBERKV_ASSIGN_OR_RETURN(const auto session, engine.OpenSession());
  const double start = Now();
  EMBERKV_RETURN_IF_ERROR(session->Prefill(ids));
  GenerateOptions one;
  one.max_tokens = 1;
  EMBERKV_ASSIGN_OR_RETURN(const Generation first, session->Generate(one));
  return FirstToken{std::move(state), Now() - start, session->stats().reuse};
}

// A session's pages, as a store takes them.
struct SessionPages {
  SessionPages() {
    std::mt19937_64 bits(1);
    BlockHash parent;
    for (size_t i = 0; i < static_cast<size_t>(kSessionTokens / kBlock); ++i) {
      tokens.emplace_back();
      for (int t = 0; t < kBlock; ++t) tokens.back().push_back(static_cast<int32_t>(bits() % 100'000));
      payloads.emplace_back(kPageBytes);
      for (uint8_t& byte : payloads.back()) byte = static_cast<uint8_t>(bits());
      parents.push_back(parent);
      parent = HashBlock(parent, {}, tokens.back());
      keys.push_back(parent);
    }
  }

  std::vector<PageRecord> Records() const {
    std::vector<PageRecord> records;
    for (size_t i = 0; i < keys.size(); ++i) records.push_back({keys[i], parents[i], {}, {}, tokens[i], payloads[i]});
    return records;
  }
  std::vector<GetRequest> Requests() {
    std::vector<GetRequest> requests;
    for (size_t i = 0; i < keys.size(); ++i) requests.push_back({keys[i], parents[i], {}, tokens[i], payloads[i]});
    return requests;
  }
  double gigabytes() const { return static_cast<double>(keys.size() * kPageBytes) / 1e9; }

  std::vector<BlockHash> keys, parents;
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<uint8_t>> payloads;
};

// Reads all of `path` past the page cache.
Status ReadDirect(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (file < 0) return Unavailable("cannot open " + path);
  const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(kAlignment, kPieceBytes), &std::free);
  ssize_t bytes = 0;
  do {
    bytes = read(file, buffer.get(), kPieceBytes);
  } while (bytes > 0);
  close(file);
  return bytes == 0 ? Status::Ok() : Unavailable("cannot read " + path);
}

Status WritePlain(const std::string& path, const SessionPages& pages) {
  std::ofstream file(path, std::ios::binary);
  for (const auto& payload : pages.payloads) {
    file.write(reinterpret_cast<const char*>(payload.data()),
               static_cast<std::streamsize>(payload.size() / kAlignment * kAlignment));
  }
  return file.flush().good() ? Status::Ok() : Unavailable("cannot write " + path);
}

}  // namespace

Result<std::vector<FirstToken>> BenchFirstToken(const std::string& model_dir, const std::string& directory,
                                                int64_t tokens) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.store_dir = directory;
  options.store_budget_bytes = uint64_t{1} << 30;
  std::vector<FirstToken> runs;
  std::vector<int32_t> ids;
  {
    EMBERKV_ASSIGN_OR_RETURN(const auto engine, Engine::Load(options));
    ids = RandomIds(*engine, tokens);
    for (const char* state : {"cold", "from memory"}) {
      EMBERKV_ASSIGN_OR_RETURN(FirstToken run, TimeFirstToken(*engine, ids, state));
      runs.push_back(std::move(run));
    }
    if (!engine->Flush(std::chrono::seconds(60))) return Unavailable("the store takes too long");
  }
  EMBERKV_ASSIGN_OR_RETURN(const auto engine, Engine::Load(options));
  EMBERKV_ASSIGN_OR_RETURN(FirstToken run, TimeFirstToken(*engine, ids, "from disk after a restart"));
  runs.push_back(std::move(run));
  return runs;
}

Result<Measurement> BenchSessionLoad(const std::string& directory, int rounds) {
  SessionPages pages;
  SystemClock clock;
  LocalStoreOptions options;
  options.directory = directory;
  options.budget_bytes = uint64_t{1} << 30;
  {
    EMBERKV_ASSIGN_OR_RETURN(const auto store, LocalStore::Open(options, &clock));
    for (const PutOutcome outcome : store->Put(pages.Records())) {
      if (outcome != PutOutcome::kStored) {
        return Internal(fmt::format("a page was {}", PutOutcomeName(outcome)));
      }
    }
  }
  const std::string plain = (fs::path(directory) / "plain.bin").string();
  EMBERKV_RETURN_IF_ERROR(WritePlain(plain, pages));
  EMBERKV_ASSIGN_OR_RETURN(const auto store, LocalStore::Open(options, &clock));
  Status status;
  MeasurementSpec spec;
  spec.name = fmt::format("load {} pages of {} bytes", pages.keys.size(), kPageBytes);
  spec.unit = "GB/s";
  spec.limit = Contender{"1 MiB direct reads of one file", pages.gigabytes(), [&] {
                           if (status.ok()) status = ReadDirect(plain);
                         }};
  spec.subject = {"store", pages.gigabytes(), [&] {
                    for (const GetOutcome outcome : store->Get(pages.Requests(), std::chrono::seconds(60))->Wait()) {
                      if (outcome != GetOutcome::kHit) status = Internal("a stored page was not read");
                    }
                  }};
  Measurement measurement = Measure(spec, rounds);
  std::error_code ignored;
  fs::remove(plain, ignored);
  EMBERKV_RETURN_IF_ERROR(status);
  return measurement;
}

Result<std::vector<ReplayRate>> BenchReplay(const std::string& model_dir, int64_t tokens, int threads) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.num_threads = threads;
  EMBERKV_ASSIGN_OR_RETURN(const auto engine, Engine::Load(options));
  const std::vector<int32_t> ids = RandomIds(*engine, tokens);
  std::vector<ReplayRate> rates;
  for (const ReplayMode replay : {ReplayMode::kFull, ReplayMode::kExact, ReplayMode::kBounded}) {
    SessionOptions cold;
    cold.reuses_prefixes = false;
    EMBERKV_ASSIGN_OR_RETURN(const auto session, engine->OpenSession(cold));
    PrefillOptions prefill;
    prefill.replay = replay;
    EMBERKV_RETURN_IF_ERROR(session->Prefill(ids, prefill));
    GenerateOptions generate;
    generate.max_tokens = kAnswerTokens;
    generate.stops_at_eos = false;
    EMBERKV_ASSIGN_OR_RETURN(const Generation answer, session->Generate(generate));
    const SessionStats stats = session->stats();
    rates.push_back({replay, static_cast<double>(stats.prefill_tokens) / stats.prefill_seconds,
                     static_cast<double>(stats.decode_tokens) / stats.decode_seconds, stats.token_layer_share()});
  }
  return rates;
}

}  // namespace emberkv
