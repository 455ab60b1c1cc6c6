// The values of index rows as bytes.
#include <fmt/format.h>

#include <cstring>

#include "store/store_index.h"

namespace emberkv {
namespace {

constexpr uint8_t kRowVersion = 1;
constexpr size_t kMaxBootIdBytes = 255;

template <class T>
void Append(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}

// Takes values off the front of a row; once it was too short, everything it gives is zero.
class Row {
 public:
  explicit Row(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  T Take() {
    T value{};
    if (bytes_.size() < sizeof value) {
      is_short_ = true;
      bytes_ = {};
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_.remove_prefix(sizeof value);
    return value;
  }

  std::string_view rest() const { return bytes_; }
  bool is_whole() const { return !is_short_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool is_short_ = false;
};

Status Refused(const char* row, uint8_t version) {
  if (version != kRowVersion) {
    return DataLoss(fmt::format("index: {} row of version {}, this build reads {}", row, version, kRowVersion));
  }
  return DataLoss(fmt::format("index: {} row is damaged", row));
}

}  // namespace

std::string EncodePageEntry(const PageEntry& entry) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, entry.place.segment);
  Append(out, entry.place.slot);
  Append(out, entry.place.generation);
  Append(out, entry.num_tokens);
  Append(out, entry.payload_bytes);
  Append(out, entry.deadline_us);
  Append(out, entry.tenant);
  return out;
}

Result<PageEntry> DecodePageEntry(std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  PageEntry entry;
  entry.place.segment = row.Take<uint32_t>();
  entry.place.slot = row.Take<uint32_t>();
  entry.place.generation = row.Take<uint64_t>();
  entry.num_tokens = row.Take<uint32_t>();
  entry.payload_bytes = row.Take<uint32_t>();
  entry.deadline_us = row.Take<int64_t>();
  entry.tenant = row.Take<Digest>();
  if (version != kRowVersion || !row.is_whole()) return Refused("page", version);
  return entry;
}

std::string EncodeSegmentEntry(const SegmentEntry& entry) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, entry.filled_slots);
  Append(out, entry.generation);
  for (const auto& [deadline_us, sum] : entry.by_deadline) {
    Append(out, deadline_us);
    Append(out, sum.pages);
    Append(out, sum.bytes);
  }
  return out;
}

Result<SegmentEntry> DecodeSegmentEntry(uint32_t segment, std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  SegmentEntry entry;
  entry.segment = segment;
  entry.filled_slots = row.Take<uint32_t>();
  entry.generation = row.Take<uint64_t>();
  while (version == kRowVersion && !row.rest().empty()) {
    const auto deadline_us = row.Take<int64_t>();
    SegmentEntry::Sum sum;
    sum.pages = row.Take<uint64_t>();
    sum.bytes = row.Take<uint64_t>();
    const bool follows = entry.by_deadline.empty() || deadline_us > entry.last_deadline_us();
    if (sum.pages == 0 || !follows) return Refused("segment", version);
    entry.by_deadline.emplace_hint(entry.by_deadline.end(), deadline_us, sum);
  }
  if (version != kRowVersion || !row.is_whole()) return Refused("segment", version);
  return entry;
}

std::string EncodeMoment(const DurableMoment& moment) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, moment.durable_us);
  Append(out, moment.wall_us);
  Append(out, moment.monotonic_us);
  out += moment.boot_id.substr(0, kMaxBootIdBytes);
  return out;
}

Result<DurableMoment> DecodeMoment(std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  DurableMoment moment;
  moment.durable_us = row.Take<int64_t>();
  moment.wall_us = row.Take<int64_t>();
  moment.monotonic_us = row.Take<int64_t>();
  constexpr size_t kFixedBytes = 1 + 3 * sizeof(int64_t);
  if (version != kRowVersion || value.size() < kFixedBytes ||
      row.rest().size() > kMaxBootIdBytes) {
    return Refused("clock", version);
  }
  moment.boot_id = row.rest();
  return moment;
}

}  // namespace emberkv
