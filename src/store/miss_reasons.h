// Why pages are not there, for a bounded number of keys: the oldest reasons are forgotten first.
//
// A ring of numbered rows, each of which holds one key or none. A store that survives its process keeps the
// rows beside its pages: it takes those that changed, writes them, and adopts all of them in its next life.
// Not thread-safe: the store's mutex protects it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "layout/identity.h"
#include "store/kv_store.h"

namespace emberkv {

struct MissRow {
  uint32_t number = 0;  // serial modulo the capacity
  uint64_t serial = 0;  // later rows have greater ones
  GetOutcome reason = GetOutcome::kNeverSeen;  // that: the row is empty
  BlockHash key;

  bool operator==(const MissRow&) const = default;
};

class MissReasons {
 public:
  explicit MissReasons(size_t capacity) : capacity_(capacity) {}

  void Record(const BlockHash& key, GetOutcome reason);  // replaces an earlier reason
  void Forget(const BlockHash& key);
  GetOutcome ReasonOf(const BlockHash& key) const;  // kNeverSeen when none is known

  size_t count(GetOutcome reason) const;

  // Rows as they were taken, in any order, of an object with perhaps another capacity: those that do not fit
  // are left out. Before anything is recorded.
  void Adopt(std::span<const MissRow> rows);
  bool has_changes() const { return !changed_.empty(); }
  // The rows that changed since they were last taken. PutBack: they could not be written.
  std::vector<MissRow> TakeChanges();
  void PutBack(std::span<const MissRow> rows);

 private:
  struct Place {
    MissRow row;
    bool is_changed = false;
  };

  void MarkChanged(uint32_t number);
  void Fill(const MissRow& row);
  void Empty(uint32_t number);

  const size_t capacity_;
  uint64_t next_serial_ = 0;
  std::vector<Place> ring_;  // as far as it was filled
  std::unordered_map<BlockHash, uint32_t, DigestHash> numbers_;
  std::unordered_map<GetOutcome, size_t> counts_;
  std::vector<uint32_t> changed_;
};

}  // namespace emberkv
