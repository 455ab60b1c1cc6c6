// What `emberkv cache` does with a store: one function for each subcommand, an open store in, text
// out. With `json` the text is one object a line.
//
// Used by the command's one thread. The store is the caller's; having it open keeps other processes
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "engine/engine.h"
#include "store/local_store.h"

namespace emberkv {

// Opens a store that is there; unlike LocalStore::Open it makes none. A budget of 0 is the recorded one.
// `clock` outlives the store.
Result<std::unique_ptr<LocalStore>> OpenStore(const std::string& directory, uint64_t budget_bytes,
                                              const Clock* clock);

// Calls `visit` for every page, in the order of keys, until it returns false.
Status VisitPages(const LocalStore& store,
                  const std::function<bool(const StoreIndex::KeyedEntry&)>& visit);

// "71 h 59 min left", "expired 3 min 20 s ago".
std::string DeadlineText(int64_t deadline_us, int64_t now_us);
std::string ProvenanceText(Provenance provenance);  // "canonical", "replayed@256"
// Whose pages: "local" are those of an engine that serves one user; else 64 hex digits.
std::string TenantText(const Digest& tenant);

Result<std::string> DescribeStore(LocalStore& store, bool json);

struct ListOptions {
  size_t limit = 0;  // 0: all
  bool json = false;
};
Result<std::string> ListPages(LocalStore& store, const ListOptions& options);

// Reads every page from the disk; what is corrupt is quarantined, so that it is never served.
// `progress` gets the pages read so far.
ScrubReport VerifyPages(LocalStore& store, const std::function<void(const ScrubReport&)>& progress);
std::string VerifyText(const ScrubReport& report, bool json);

std::string SweepPages(LocalStore& store, bool json);

// `tenant` is "local", "name:" and a name under the secret in `directory`, the store's, 64 hex digits, or "all".
Result<std::string> ErasePages(LocalStore& store, const std::string& directory, std::string_view tenant,
                               bool json);

struct ExplainOptions {
  ReplayMode replay = ReplayMode::kBounded;
  bool json = false;
};
// What a run of `text` would reuse, and why not more.
Result<std::string> ExplainText(LocalStore& store, const PrefixProbe& model, std::string_view text,
                                const ExplainOptions& options);

}  // namespace emberkv
