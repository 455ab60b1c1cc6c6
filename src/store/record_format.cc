#include "store/record_format.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <iterator>

#include "base/isa.h"
#include "store/record_checksum.h"

namespace emberkv {
namespace {

static_assert(std::endian::native == std::endian::little, "stored integers are little-endian");

constexpr char kMagic[8] = {'E', 'M', 'B', 'R', 'P', 'A', 'G', 'E'};
constexpr size_t kChecksumAt = offsetof(RecordHeader, checksum);

using Checksum = std::array<uint8_t, kChecksumBytes>;
static_assert(sizeof(Checksum) == sizeof(RecordHeader::checksum));

Checksum ChecksumOf(const RecordPieces& pieces) {
  const std::span<const uint8_t> tokens = pieces.head.subspan(sizeof(RecordHeader));
  const ByteRun runs[] = {{pieces.head.data(), kChecksumAt},
                          {tokens.data(), tokens.size()},
                          {pieces.payload.data(), pieces.payload.size()},
                          {pieces.padding.data(), pieces.padding.size()}};
  Checksum checksum;
  EMBERKV_FOR_ACTIVE_ISA(ChecksumOfRuns)(runs, std::size(runs), checksum.data());
  return checksum;
}

}  // namespace

void EncodeRecord(const PageRecord& page, const RecordPlace& place, std::span<uint8_t> out) {
  assert(out.size() == RecordBytes(page.tokens.size(), page.payload.size()));
  RecordHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kRecordVersion;
  header.header_bytes = sizeof header;
  header.record_bytes = static_cast<uint32_t>(out.size());
  header.num_tokens = static_cast<uint32_t>(page.tokens.size());
  header.payload_bytes = static_cast<uint32_t>(page.payload.size());
  header.segment = place.segment;
  header.generation = place.generation;
  header.slot = place.slot;
  header.replayed_at = page.provenance.replayed_at;
  header.key = page.key;
  header.parent = page.parent;
  header.tenant = page.tenant;

  const size_t head_bytes = RecordHeadBytes(page.tokens.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!page.tokens.empty()) {
    std::memcpy(out.data() + sizeof header, page.tokens.data(), page.tokens.size_bytes());
  }
  if (!page.payload.empty()) {
    std::memcpy(out.data() + head_bytes, page.payload.data(), page.payload.size());
  }
  const size_t end = head_bytes + page.payload.size();
  std::memset(out.data() + end, 0, out.size() - end);
  const Checksum checksum = ChecksumOf(SplitRecord(out, page.tokens.size(), page.payload.size()));
  std::memcpy(out.data() + kChecksumAt, checksum.data(), checksum.size());
}

RecordPieces SplitRecord(std::span<const uint8_t> record, size_t num_tokens, size_t payload_bytes) {
  const size_t head_bytes = RecordHeadBytes(num_tokens);
  return {record.first(head_bytes), record.subspan(head_bytes, payload_bytes),
          record.subspan(head_bytes + payload_bytes)};
}

Result<RecordHeader> CheckRecord(const RecordPieces& pieces, const RecordPlace& place) {
  RecordHeader header;
  if (pieces.head.size() < sizeof header) return DataLoss("record: shorter than its header");
  std::memcpy(&header, pieces.head.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return DataLoss("record: no record here");
  if (header.version != kRecordVersion) {
    return DataLoss(fmt::format("record: version {}, this build reads {}", header.version, kRecordVersion));
  }
  const size_t record_bytes = pieces.head.size() + pieces.payload.size() + pieces.padding.size();
  if (header.header_bytes != sizeof header || header.record_bytes != record_bytes ||
      RecordHeadBytes(header.num_tokens) != pieces.head.size() ||
      header.payload_bytes != pieces.payload.size()) {
    return DataLoss("record: its lengths are not those of the index");
  }
  if (header.segment != place.segment || header.slot != place.slot ||
      header.generation != place.generation) {
    return DataLoss(fmt::format("record: written for segment {} slot {} generation {}", header.segment,
                                header.slot, header.generation));
  }
  const Checksum checksum = ChecksumOf(pieces);
  if (std::memcmp(checksum.data(), header.checksum, checksum.size()) != 0) {
    return DataLoss("record: checksum mismatch");
  }
  return header;
}

bool RecordAnswers(const RecordPieces& pieces, const RecordPlace& place, const GetRequest& request) {
  const Result<RecordHeader> header = CheckRecord(pieces, place);
  return header.ok() && header->key == request.key && header->parent == request.parent &&
         header->replayed_at == request.provenance.replayed_at &&
         header->num_tokens == request.tokens.size() &&
         (request.tokens.empty() || std::memcmp(pieces.head.data() + sizeof(RecordHeader),
                                                request.tokens.data(), request.tokens.size_bytes()) == 0);
}

Result<ParsedRecord> ParseRecord(std::span<const uint8_t> record, const RecordPlace& place) {
  RecordHeader claimed;
  if (record.size() < sizeof claimed) return DataLoss("record: shorter than its header");
  std::memcpy(&claimed, record.data(), sizeof claimed);
  if (RecordBytes(claimed.num_tokens, claimed.payload_bytes) != record.size()) {
    return DataLoss("record: its lengths are not those of the index");
  }
  const RecordPieces pieces = SplitRecord(record, claimed.num_tokens, claimed.payload_bytes);
  EMBERKV_ASSIGN_OR_RETURN(const RecordHeader header, CheckRecord(pieces, place));
  ParsedRecord parsed;
  parsed.tokens.resize(header.num_tokens);
  if (header.num_tokens > 0) {
    std::memcpy(parsed.tokens.data(), record.data() + sizeof header,
                parsed.tokens.size() * sizeof(int32_t));
  }
  parsed.page = {header.key,    header.parent, {header.replayed_at},
                 header.tenant, parsed.tokens, pieces.payload};
  if (!KeyMatchesParts(parsed.page)) return DataLoss("record: the key is not the hash of its parts");
  return parsed;
}

Result<PageHead> ParseHead(std::span<const uint8_t> bytes, const BlockHash& key) {
  RecordHeader header;
  if (bytes.size() < sizeof header) return DataLoss("record: shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (RecordHeadBytes(header.num_tokens) != bytes.size()) {
    return DataLoss("record: its lengths are not those of the index");
  }
  PageHead head{header.parent, {header.replayed_at}, std::vector<int32_t>(header.num_tokens)};
  const std::span<const uint8_t> tokens = bytes.subspan(sizeof header);
  if (!tokens.empty()) std::memcpy(head.tokens.data(), tokens.data(), tokens.size());
  if (HashBlock(head.parent, head.provenance, head.tokens) == key) return head;
  return DataLoss("record: the key is not the hash of its parts");
}

}  // namespace emberkv
