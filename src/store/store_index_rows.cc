// The values of index rows as bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "store/kv_store.h"
#include "store/store_index.h"

namespace emberkv {
namespace {

constexpr uint8_t kRowVersion = 1;
constexpr uint8_t kOwnRetentionVersion = 2;  // of rows of pages that have a retention of their own
// By number; the numbers are part of the format.
constexpr GetOutcome kMissReasons[] = {GetOutcome::kNeverSeen, GetOutcome::kExpired, GetOutcome::kRefused,
                                       GetOutcome::kQuarantined};
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

void AppendSums(const SumsByDeadline& sums, std::string* out) {
  for (const auto& [deadline_us, sum] : sums) {
    Append(*out, deadline_us);
    Append(*out, sum.pages);
    Append(*out, sum.bytes);
  }
}

// The rest of the row. False if it, or what was taken from the row before, is not sound.
bool TakeSums(Row* row, SumsByDeadline* sums) {
  while (!row->rest().empty()) {
    const auto deadline_us = row->Take<int64_t>();
    PageSum sum;
    sum.pages = row->Take<uint64_t>();
    sum.bytes = row->Take<uint64_t>();
    if (sum.pages == 0 || (!sums->empty() && deadline_us <= sums->rbegin()->first)) return false;
    sums->emplace_hint(sums->end(), deadline_us, sum);
  }
  return row->is_whole();
}

}  // namespace

std::string EncodePageEntry(const PageEntry& entry) {
  std::string out;
  Append(out, entry.retention_us == 0 ? kRowVersion : kOwnRetentionVersion);
  Append(out, entry.place.segment);
  Append(out, entry.place.slot);
  Append(out, entry.place.generation);
  Append(out, entry.num_tokens);
  Append(out, entry.payload_bytes);
  Append(out, entry.deadline_us);
  Append(out, entry.tenant);
  if (entry.retention_us != 0) Append(out, entry.retention_us);
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
  if (version == kOwnRetentionVersion) {
    entry.retention_us = row.Take<int64_t>();
    if (entry.retention_us <= 0 || entry.retention_us > kMaxRetention.count()) return Refused("page", kRowVersion);
  } else if (version != kRowVersion) {
    return Refused("page", version);
  }
  if (!row.is_whole()) return Refused("page", kRowVersion);
  return entry;
}

std::string EncodeSegmentEntry(const SegmentEntry& entry) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, entry.filled_slots);
  Append(out, entry.generation);
  AppendSums(entry.by_deadline, &out);
  return out;
}

Result<SegmentEntry> DecodeSegmentEntry(uint32_t segment, std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  SegmentEntry entry;
  entry.segment = segment;
  entry.filled_slots = row.Take<uint32_t>();
  entry.generation = row.Take<uint64_t>();
  if (version != kRowVersion || !TakeSums(&row, &entry.by_deadline)) return Refused("segment", version);
  return entry;
}

std::string EncodeTenantEntry(const TenantEntry& entry) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, entry.longest_retention_us);
  AppendSums(entry.by_deadline, &out);
  return out;
}

Result<TenantEntry> DecodeTenantEntry(const Digest& tenant, std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  TenantEntry entry;
  entry.tenant = tenant;
  entry.longest_retention_us = row.Take<int64_t>();
  const bool is_sound = version == kRowVersion && entry.longest_retention_us >= 0 &&
                        entry.longest_retention_us <= kMaxRetention.count() && !row.rest().empty();
  if (!is_sound || !TakeSums(&row, &entry.by_deadline)) return Refused("tenant", version);
  return entry;
}

std::string EncodeMissRow(const MissRow& row) {
  std::string out;
  Append(out, kRowVersion);
  Append(out, row.serial);
  const auto* const reason = std::ranges::find(kMissReasons, row.reason);
  Append(out, static_cast<uint8_t>(reason - std::begin(kMissReasons)));
  Append(out, row.key);
  return out;
}

Result<MissRow> DecodeMissRow(uint32_t number, std::string_view value) {
  Row row(value);
  const auto version = row.Take<uint8_t>();
  MissRow miss;
  miss.number = number;
  miss.serial = row.Take<uint64_t>();
  const auto reason = row.Take<uint8_t>();
  miss.key = row.Take<BlockHash>();
  const bool is_known = reason > 0 && reason < std::size(kMissReasons);
  if (version != kRowVersion || !is_known || !row.is_whole()) return Refused("miss", version);
  miss.reason = kMissReasons[reason];
  return miss;
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
