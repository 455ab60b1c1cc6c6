// Pages for tests of stores: page number n has the same key and bytes in every run.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/kv_store.h"

namespace emberkv {

struct TestPage {
  BlockHash key;
  BlockHash parent;
  Provenance provenance;
  Digest tenant;
  std::vector<int32_t> tokens;
  std::vector<uint8_t> payload;

  PageRecord Record() const { return {key, parent, provenance, tenant, tokens, payload}; }
  GetRequest Request(std::span<uint8_t> into) const {
    return {key, parent, provenance, tokens, into};
  }
};

inline Digest TestTenant(uint64_t number) { return Sha256("tenant " + std::to_string(number)); }

inline TestPage MakeTestPage(uint64_t number, size_t payload_bytes, uint64_t tenant = 0) {
  constexpr size_t kTokens = 128;
  std::mt19937_64 random(number * 1'000'003 + tenant);
  TestPage page;
  page.tenant = TestTenant(tenant);
  page.parent = Sha256("parent " + std::to_string(number));
  page.provenance = {number % 3 == 0 ? 128 * number : 0};
  for (size_t i = 0; i < kTokens; ++i) {
    page.tokens.push_back(static_cast<int32_t>(random() % 129'280));
  }
  page.payload.resize(payload_bytes);
  for (uint8_t& byte : page.payload) byte = static_cast<uint8_t>(random() >> 32);
  page.key = HashBlock(page.parent, page.provenance, page.tokens);
  return page;
}

inline std::vector<TestPage> MakeTestPages(uint64_t first, size_t count, size_t payload_bytes,
                                           uint64_t tenant = 0) {
  std::vector<TestPage> pages;
  for (size_t i = 0; i < count; ++i) {
    pages.push_back(MakeTestPage(first + i, payload_bytes, tenant));
  }
  return pages;
}

inline std::vector<BlockHash> KeysOf(std::span<const TestPage> pages) {
  std::vector<BlockHash> keys;
  for (const TestPage& page : pages) keys.push_back(page.key);
  return keys;
}

inline std::vector<PutOutcome> PutPages(KvStore& store, std::span<const TestPage> pages) {
  std::vector<PageRecord> records;
  for (const TestPage& page : pages) records.push_back(page.Record());
  return store.Put(records);
}

inline PutOutcome PutPage(KvStore& store, const TestPage& page) {
  const std::vector<PutOutcome> outcomes = PutPages(store, {&page, 1});
  EXPECT_EQ(outcomes.size(), 1u);
  return outcomes.at(0);
}

// Longer than any read of a test takes: only an injected fault runs into it.
inline constexpr std::chrono::milliseconds kTestTimeout = std::chrono::seconds(60);

// Reads pages in one batch. A hit with other bytes than were put fails the test.
inline std::vector<GetOutcome> ReadPages(KvStore& store, std::span<const TestPage> pages,
                                         std::chrono::milliseconds timeout = kTestTimeout) {
  std::vector<std::vector<uint8_t>> payloads;
  std::vector<GetRequest> requests;
  for (const TestPage& page : pages) payloads.emplace_back(page.payload.size(), uint8_t{0xcd});
  for (size_t i = 0; i < pages.size(); ++i) requests.push_back(pages[i].Request(payloads[i]));
  const std::vector<GetOutcome> outcomes = store.Get(std::move(requests), timeout)->Wait();
  EXPECT_EQ(outcomes.size(), pages.size());
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i] == GetOutcome::kHit) {
      EXPECT_TRUE(payloads[i] == pages[i].payload) << "wrong bytes served, place " << i;
    }
  }
  return outcomes;
}

inline GetOutcome ReadPage(KvStore& store, const TestPage& page) {
  const std::vector<GetOutcome> outcomes = ReadPages(store, {&page, 1});
  EXPECT_EQ(outcomes.size(), 1u);
  return outcomes.at(0);
}

// Readable in a test's failure message.
inline void PrintTo(PutOutcome outcome, std::ostream* out) { *out << PutOutcomeName(outcome); }
inline void PrintTo(GetOutcome outcome, std::ostream* out) { *out << GetOutcomeName(outcome); }

}  // namespace emberkv
