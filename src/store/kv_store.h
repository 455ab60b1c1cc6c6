// The durable tier: pages of global KV by block hash, kept for a promised time.
//
// A page that Put reported as kStored is readable until its deadline: `retention` after it was
// stored or last served, whichever is later; the store's, or the page's own where it was put with one.
// The promise is never broken: when the budget, or the tenant's part of it, is full of pages whose
// deadline lies ahead, new pages are refused (docs/architecture.md 6). Expired pages
// may stay readable until their space is needed. Durable means synced. Nothing here fails a
// request: every outcome but a hit means that the caller computes the tokens again.
//
// All calls may come from any thread. Spans passed in must stay valid until the call returns (Put,
// Contains, ...) or the pending read is destroyed (Get). A store outlives its pending reads.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "layout/identity.h"

namespace emberkv {

inline constexpr std::chrono::microseconds kMaxRetention = std::chrono::hours(24 * 366);  // of a page's own

// What a page's tenant may keep. It comes with each page: a store has no list of tenants.
struct StoreLimits {
  // What the tenant's promised pages may take in the store, overheads included. 0: no limit. Pages that have
  // expired do not count until they are used again, which is never refused.
  uint64_t max_bytes = 0;
  // Of this page, until it is put with another one. 0: the store's; above kMaxRetention: that.
  std::chrono::microseconds retention{0};

  int64_t own_retention_us() const {
    return std::clamp<int64_t>(retention.count(), 0, kMaxRetention.count());
  }
};

// A page and what it says of itself. The store keeps all of it and verifies all of it on every
// read.
struct PageRecord {
  BlockHash key;     // == HashBlock(parent, provenance, tokens)
  BlockHash parent;  // the previous block's hash or the key root
  Provenance provenance;
  Digest tenant;  // whose pages these are, for EraseTenant; one key belongs to one tenant, because
                  // the key root holds the tenant's salt
  std::span<const int32_t> tokens;
  std::span<const uint8_t> payload;
  StoreLimits limits{};  // of the tenant; not part of what is verified
};

enum class PutOutcome {
  kStored,           // durable
  kAlreadyThere,     // an equal key is stored; it has the retention of this put, its deadline was extended
  kRefusedFull,      // the budget holds unexpired pages only
  kRefusedTenantFull,  // the tenant's unexpired pages would take more than it may have
  kRefusedTooLarge,  // larger than this store can ever hold, whatever is in it
  kFailed,  // I/O, or the key is not the hash of the record's parts; nothing is visible under it
};
const char* PutOutcomeName(PutOutcome outcome);

// Why a page is not there (kExpired, kRefused, kQuarantined) is remembered for a bounded number of
// keys; beyond it, and after EraseTenant, the answer is kNeverSeen. What survives its process remembers
// this too, but for refusals just before a crash.
enum class GetOutcome {
  kHit,  // verified: checksum, key, parent, provenance and tokens
  kNeverSeen,
  kExpired,      // was there, its deadline has passed and its space was taken
  kRefused,      // was offered to this store and refused: no space, or none left of the tenant's
  kCorrupt,      // failed verification; counted and quarantined
  kQuarantined,  // failed verification before, and was not stored again since
  kTimeout,      // not read by the deadline
  kFailed,       // I/O error
};
const char* GetOutcomeName(GetOutcome outcome);

// One page to read. `tokens`, `parent` and `provenance` are what the caller expects; a stored
// record that differs is corrupt whatever its checksum says. `payload` (page bytes) is filled on
// kHit and unspecified otherwise.
struct GetRequest {
  BlockHash key;
  BlockHash parent;
  Provenance provenance;
  std::span<const int32_t> tokens;
  std::span<uint8_t> payload;
};

// What both sides check first, so that whatever can be stored can be read back: the key is the hash
// of the parts. A contradicting record is not stored (kFailed). A contradicting request gets
// kCorrupt, and the record under its key, which may be sound, is left alone.
bool KeyMatchesParts(const PageRecord& record);
bool KeyMatchesParts(const GetRequest& request);

// A batch of reads under way; used by one thread at a time. Destroying it, before or after Wait,
// waits until the store no longer touches the payloads.
class PendingGet {
 public:
  virtual ~PendingGet() = default;
  // Waits until every read is finished or the batch's deadline has passed; outcomes in request
  // order. Called again, it gives the same outcomes.
  virtual std::vector<GetOutcome> Wait() = 0;
};

// What expires at one moment.
struct DeadlineSum {
  int64_t left_us = 0;  // until then
  uint64_t pages = 0;
  uint64_t bytes = 0;
};

// What a tenant has in the store, overheads included.
struct TenantSum {
  Digest tenant;
  uint64_t pages = 0;
  uint64_t bytes = 0;
  uint64_t promised_bytes = 0;  // of these, of pages whose deadline lies ahead: what its limit is for

  bool operator==(const TenantSum&) const = default;
};

struct StoreStats {
  uint64_t budget_bytes = 0;
  uint64_t used_bytes = 0;      // all that counts against the budget, overheads included
  uint64_t promised_bytes = 0;  // of pages whose deadline lies ahead
  uint64_t pages = 0;
  uint64_t quarantined = 0;
  int64_t retention_us = 0;
  std::vector<DeadlineSum> deadlines{};  // of promised pages, soonest first; empty where it is not told
  std::vector<TenantSum> tenants{};      // those that have pages, in no order
  // Since the store was opened.
  uint64_t puts_stored = 0;
  uint64_t puts_already_there = 0;
  uint64_t puts_refused_full = 0;
  uint64_t puts_refused_tenant_full = 0;
  uint64_t puts_refused_too_large = 0;
  uint64_t puts_failed = 0;
  uint64_t get_hits = 0;
  uint64_t get_misses = 0;
  uint64_t get_corrupt = 0;
  uint64_t get_timeouts = 0;
  uint64_t get_failed = 0;
  uint64_t bytes_written = 0;  // payloads
  uint64_t bytes_read = 0;     // payloads of hits
  uint64_t evicted_expired = 0;
  uint64_t evicted_before_deadline = 0;  // stays 0: the promise, as a number
};

class KvStore {
 public:
  virtual ~KvStore() = default;

  // Stores pages that are not there yet, in order; one outcome per page. When it returns, kStored
  // pages are synced. A new page counts as just used. A quarantined page is replaced.
  virtual std::vector<PutOutcome> Put(std::span<const PageRecord> pages) = 0;

  // Starts reading. A hit extends the page's deadline, also one that has passed. `timeout` bounds
  // Wait.
  virtual std::unique_ptr<PendingGet> Get(std::vector<GetRequest> requests,
                                          std::chrono::milliseconds timeout) = 0;

  // Whether a page is readable now, whatever its deadline. Extends nothing and reads no payload.
  virtual std::vector<bool> Contains(std::span<const BlockHash> keys) = 0;

  // Extends deadlines as a hit would.
  virtual void Touch(std::span<const BlockHash> keys) = 0;

  // Makes every page of the tenant unreadable at once. Returns how many there were, 0 if none. After an error
  // some of them may still be readable: erase again.
  virtual Result<uint64_t> EraseTenant(const Digest& tenant) = 0;

  // Frees expired pages' space now. Returns how many pages went.
  virtual uint64_t Sweep() = 0;

  virtual StoreStats Stats() = 0;
};

}  // namespace emberkv
