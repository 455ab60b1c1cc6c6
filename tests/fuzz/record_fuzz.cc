// Bytes of a disk as records and as index rows: what is accepted is consistent, and nothing crashes.
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "store/record_format.h"
#include "store/store_index.h"

namespace {

using namespace emberkv;

void Require(bool condition) {
  if (!condition) std::abort();
}

void FuzzRecord(std::span<const uint8_t> bytes) {
  const RecordPlace place{.segment = 1, .slot = 2, .generation = 3};
  const auto parsed = ParseRecord(bytes, place);
  if (!parsed.ok()) return;
  Require(KeyMatchesParts(parsed->page));
  std::vector<uint8_t> again(bytes.size());
  EncodeRecord(parsed->page, place, again);
  Require(ParseRecord(again, place).ok());
}

// The fuzzer cannot guess a checksum, so it writes the parts of a record and flips one of its bytes.
void FuzzParts(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4) return;
  const size_t num_tokens = bytes[0] % 8;
  const size_t flip = bytes[1] | bytes[2] << 8;
  const uint8_t mask = bytes[3];
  std::vector<int32_t> tokens(num_tokens, mask);
  const std::span<const uint8_t> payload = bytes.subspan(4);
  PageRecord page{.key = {}, .parent = {}, .provenance = {mask}, .tenant = {}, .tokens = tokens, .payload = payload};
  page.key = HashBlock(page.parent, page.provenance, page.tokens);
  const RecordPlace place{.segment = 1, .slot = 2, .generation = 3};
  std::vector<uint8_t> record(RecordBytes(num_tokens, payload.size()));
  EncodeRecord(page, place, record);
  record[flip % record.size()] ^= mask;
  Require(ParseRecord(record, place).ok() == (mask == 0));
}

void FuzzRows(std::string_view bytes) {
  if (const auto page = DecodePageEntry(bytes); page.ok()) Require(EncodePageEntry(*page) == bytes);
  if (const auto segment = DecodeSegmentEntry(7, bytes); segment.ok()) {
    Require(EncodeSegmentEntry(*segment) == bytes);
  }
  if (const auto tenant = DecodeTenantEntry({}, bytes); tenant.ok()) {
    Require(EncodeTenantEntry(*tenant) == bytes);
  }
  if (const auto miss = DecodeMissRow(3, bytes); miss.ok()) Require(EncodeMissRow(*miss) == bytes);
  if (const auto moment = DecodeMoment(bytes); moment.ok()) Require(EncodeMoment(*moment) == bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzRecord({data, size});
  FuzzParts({data, size});
  FuzzRows({reinterpret_cast<const char*>(data), size});
  return 0;
}
