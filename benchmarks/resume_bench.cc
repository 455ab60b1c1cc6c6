// What resuming saves, measured in one run.
//
//   resume_bench MODEL_DIR STORE_DIR [TOKENS]     e.g. resume_bench models/ember-tiny build/bench-store 32768
//
// 1. Time to first token of a long prompt: cold; warm from the store after a restart, windows lost; warm
//    from memory. The ratio warm / cold is the figure to quote.
// 2. Loading the pages of a 100,000-token session of the released layout from the store, against reading
//    the same bytes from one plain file in the same folder.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/engine.h"
#include "store/local_store.h"

namespace {

namespace fs = std::filesystem;
using emberkv::Status;

constexpr int64_t kSessionTokens = 100'000;
constexpr size_t kPageBytes = 113'920;  // of the released layout: `emberkv plan`
constexpr int kBlock = 128;

double Seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct FirstToken {
  double seconds = 0;
  emberkv::ReuseStats reuse;
};

emberkv::Result<FirstToken> TimeFirstToken(const emberkv::Engine& engine, const std::vector<int32_t>& ids) {
  EMBERKV_ASSIGN_OR_RETURN(const auto session, engine.OpenSession());
  const double start = Seconds();
  EMBERKV_RETURN_IF_ERROR(session->Prefill(ids));
  emberkv::GenerateOptions one;
  one.max_tokens = 1;
  EMBERKV_ASSIGN_OR_RETURN(const emberkv::Generation first, session->Generate(one));
  return FirstToken{Seconds() - start, session->stats().reuse};
}

Status BenchFirstToken(const std::string& model_dir, const std::string& store_dir, int64_t tokens) {
  emberkv::EngineOptions options;
  options.model_dir = model_dir;
  options.store_dir = store_dir;
  options.store_budget_bytes = uint64_t{1} << 30;
  std::vector<int32_t> ids;
  FirstToken cold, memory, disk;
  {
    EMBERKV_ASSIGN_OR_RETURN(const auto engine, emberkv::Engine::Load(options));
    std::mt19937 rng(1);
    const uint32_t ordinary = static_cast<uint32_t>(engine->config().vocab_size) - 64;
    for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(16 + rng() % (ordinary - 16)));
    EMBERKV_ASSIGN_OR_RETURN(cold, TimeFirstToken(*engine, ids));
    EMBERKV_ASSIGN_OR_RETURN(memory, TimeFirstToken(*engine, ids));
    if (!engine->Flush(std::chrono::seconds(60))) return emberkv::Unavailable("the store takes too long");
  }
  {
    EMBERKV_ASSIGN_OR_RETURN(const auto engine, emberkv::Engine::Load(options));
    EMBERKV_ASSIGN_OR_RETURN(disk, TimeFirstToken(*engine, ids));
  }
  fmt::print("time to first token, {} tokens\n{:<22}{:>10}{:>12}{:>10}{:>12}{:>14}\n", tokens, "", "ms",
             "hit", "replayed", "restore ms", "warm / cold");
  for (const auto& [name, run] : {std::pair{"cold", cold}, {"from memory", memory}, {"from disk, restarted", disk}}) {
    fmt::print("{:<22}{:>10.1f}{:>12}{:>10}{:>12.1f}{:>13.2f}%\n", name, 1e3 * run.seconds, run.reuse.hit_tokens,
               run.reuse.replayed_tokens, 1e3 * run.reuse.restore_seconds, 100 * run.seconds / cold.seconds);
  }
  return Status::Ok();
}

// Reads `path` in pieces of `piece` past the page cache; returns bytes per second, 0 on failure.
double ReadRate(const std::string& path, size_t piece) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  if (fd < 0) return 0;
  void* buffer = std::aligned_alloc(4096, piece);
  const double start = Seconds();
  size_t total = 0;
  for (ssize_t n = 0; (n = ::read(fd, buffer, piece)) > 0;) total += static_cast<size_t>(n);
  const double seconds = Seconds() - start;
  std::free(buffer);
  ::close(fd);
  return static_cast<double>(total) / seconds;
}

Status BenchLoad(const std::string& store_dir) {
  emberkv::SystemClock clock;
  emberkv::LocalStoreOptions options;
  options.directory = store_dir;
  options.budget_bytes = uint64_t{1} << 30;
  const size_t num_pages = static_cast<size_t>(kSessionTokens / kBlock);
  std::vector<std::vector<int32_t>> tokens(num_pages);
  std::vector<std::vector<uint8_t>> payloads(num_pages, std::vector<uint8_t>(kPageBytes));
  std::vector<emberkv::PageRecord> pages;
  std::mt19937_64 rng(1);
  emberkv::BlockHash parent;
  for (size_t i = 0; i < num_pages; ++i) {
    for (int t = 0; t < kBlock; ++t) tokens[i].push_back(static_cast<int32_t>(rng() % 100'000));
    for (uint8_t& byte : payloads[i]) byte = static_cast<uint8_t>(rng());
    const emberkv::BlockHash key = emberkv::HashBlock(parent, {}, tokens[i]);
    pages.push_back({key, parent, {}, {}, tokens[i], payloads[i]});
    parent = key;
  }
  {
    EMBERKV_ASSIGN_OR_RETURN(const auto store, emberkv::LocalStore::Open(options, &clock));
    for (const emberkv::PutOutcome outcome : store->Put(pages)) {
      if (outcome != emberkv::PutOutcome::kStored) {
        return emberkv::Internal(fmt::format("a page was {}", emberkv::PutOutcomeName(outcome)));
      }
    }
  }
  const std::string plain = store_dir + "/plain.bin";
  std::FILE* file = std::fopen(plain.c_str(), "wb");
  if (file == nullptr) return emberkv::Unavailable("cannot write " + plain);
  for (const auto& payload : payloads) std::fwrite(payload.data(), 1, payload.size() / 4096 * 4096, file);
  std::fflush(file);
  ::fsync(::fileno(file));
  std::fclose(file);

  EMBERKV_ASSIGN_OR_RETURN(const auto store, emberkv::LocalStore::Open(options, &clock));
  std::vector<double> ratios, rates, limits;
  for (int round = 0; round < 5; ++round) {
    limits.push_back(ReadRate(plain, size_t{1} << 20));
    std::vector<emberkv::GetRequest> requests;
    for (size_t i = 0; i < num_pages; ++i) {
      requests.push_back({pages[i].key, pages[i].parent, {}, tokens[i], payloads[i]});
    }
    const double start = Seconds();
    const auto outcomes = store->Get(std::move(requests), std::chrono::seconds(60))->Wait();
    const double seconds = Seconds() - start;
    for (const emberkv::GetOutcome outcome : outcomes) {
      if (outcome != emberkv::GetOutcome::kHit) return emberkv::Internal("a stored page was not read");
    }
    rates.push_back(static_cast<double>(num_pages * kPageBytes) / seconds);
    ratios.push_back(rates.back() / limits.back());
  }
  const auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  fmt::print("\nloading {} tokens of the released layout: {} pages, {:.1f} MB\n", kSessionTokens, num_pages,
             static_cast<double>(num_pages * kPageBytes) / 1e6);
  fmt::print("{:.2f} GB/s verified; {:.2f} GB/s from one plain file (1 MiB direct reads, one at a time); ratio {:.2f} (medians of 5)\n",
             median(rates) / 1e9, median(limits) / 1e9, median(ratios));
  std::error_code ignored;
  fs::remove(plain, ignored);
  return Status::Ok();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr, "usage: resume_bench MODEL_DIR STORE_DIR [TOKENS]; STORE_DIR is made and removed\n");
    return 2;
  }
  const std::string store_dir = argv[2];
  if (fs::exists(store_dir)) {
    fmt::print(stderr, "{} exists; give a folder that does not\n", store_dir);
    return 2;
  }
  fs::create_directories(store_dir);
  Status status = BenchFirstToken(argv[1], store_dir + "/model", argc > 3 ? std::strtoll(argv[3], nullptr, 10) : 32768);
  if (status.ok()) status = BenchLoad(store_dir + "/pages");
  std::error_code ignored;
  fs::remove_all(store_dir, ignored);
  if (!status.ok()) fmt::print(stderr, "{}\n", status.ToString());
  return status.ok() ? 0 : 1;
}
