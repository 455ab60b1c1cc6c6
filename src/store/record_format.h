// A stored page as bytes: a header, the token ids, the payload, zeros up to a multiple of 4 KiB
// (docs/cache_format.md). A record says what it is, where it lies and in which generation of its segment,
// and its checksum covers all of it: torn, flipped, stale and misplaced records are told from sound ones
// by their own bytes.
//
// The checksum is XXH3-128: it detects accidents at memory speed. What a forger could do is covered by
// the key, a SHA-256 of parent, provenance and tokens. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "store/kv_store.h"

namespace emberkv {

// Records start and end at multiples of this, as direct I/O needs it. A place is counted in slots.
inline constexpr size_t kSlotBytes = 4096;
inline constexpr uint32_t kRecordVersion = 1;

// Where a record lies. The generation is that of the segment when the record was written.
struct RecordPlace {
  uint32_t segment = 0;
  uint32_t slot = 0;
  uint64_t generation = 0;

  uint64_t offset() const { return uint64_t{slot} * kSlotBytes; }
  bool operator==(const RecordPlace&) const = default;
};

struct RecordHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint32_t record_bytes;  // padding included
  uint32_t num_tokens;
  uint32_t payload_bytes;
  uint32_t segment;
  uint64_t generation;
  uint32_t slot;
  uint32_t reserved0;
  uint64_t replayed_at;
  uint64_t reserved1;
  BlockHash key;
  BlockHash parent;
  Digest tenant;
  uint8_t reserved2[80];
  uint8_t checksum[16];  // of every other byte of the record
};
static_assert(sizeof(RecordHeader) == 256);

// Header and token ids: where the payload begins.
constexpr size_t RecordHeadBytes(size_t num_tokens) {
  return sizeof(RecordHeader) + num_tokens * sizeof(int32_t);
}
constexpr uint64_t RecordBytes(size_t num_tokens, size_t payload_bytes) {
  return (RecordHeadBytes(num_tokens) + payload_bytes + kSlotBytes - 1) / kSlotBytes * kSlotBytes;
}

// Writes the record of `page` to `out`, which has exactly RecordBytes.
void EncodeRecord(const PageRecord& page, const RecordPlace& place, std::span<uint8_t> out);

// A record that was read, in the three pieces that a scattered read leaves.
struct RecordPieces {
  std::span<const uint8_t> head;
  std::span<const uint8_t> payload;
  std::span<const uint8_t> padding;
};
RecordPieces SplitRecord(std::span<const uint8_t> record, size_t num_tokens, size_t payload_bytes);

// Whether the pieces are a sound record that was written at `place`; its header if so.
Result<RecordHeader> CheckRecord(const RecordPieces& pieces, const RecordPlace& place);

// Whether the pieces are the sound record at `place` that `request`, whose key matches its parts, asks for.
bool RecordAnswers(const RecordPieces& pieces, const RecordPlace& place, const GetRequest& request);

// A sound record without expectations but its place: `page` points into `tokens` and into what was parsed.
struct ParsedRecord {
  ParsedRecord() = default;
  ParsedRecord(ParsedRecord&&) = default;
  ParsedRecord& operator=(ParsedRecord&&) = default;

  std::vector<int32_t> tokens;
  PageRecord page;
};
Result<ParsedRecord> ParseRecord(std::span<const uint8_t> record, const RecordPlace& place);

// A stored page but for its payload.
struct PageHead {
  BlockHash parent;
  Provenance provenance;
  std::vector<int32_t> tokens;
};
// From the RecordHeadBytes of the page under `key`, which is the hash of all that is in the head.
Result<PageHead> ParseHead(std::span<const uint8_t> bytes, const BlockHash& key);

}  // namespace emberkv
