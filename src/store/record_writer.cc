#include "store/record_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

namespace emberkv {
namespace {

// Large enough that a device works at full rate, small enough to be ready soon.
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kPiecesInFlight = 8;

}  // namespace

RecordWriter::RecordWriter(SegmentFiles* files, SegmentIo* io, uint64_t max_record_bytes,
                           Failpoint failpoint)
    : files_(files),
      io_(io),
      buffer_bytes_(std::max<size_t>(kPieceBytes, max_record_bytes)),
      failpoint_(std::move(failpoint)) {
  for (size_t i = 0; i < kPiecesInFlight; ++i) {
    buffers_.emplace_back(new (std::align_val_t{kSlotBytes}) uint8_t[buffer_bytes_]);
    free_.push_back(buffers_.back().get());
  }
}

std::unique_ptr<RecordWriter::Group> RecordWriter::Start(std::span<RecordWrite> writes,
                                                         const std::string& cause) {
  auto group = std::make_unique<Group>();
  group->cause_ = cause;
  failpoint_(cause + ".before_write");
  while (!writes.empty()) {
    const uint32_t segment = writes.front().place.segment;
    const auto other = std::ranges::find_if(
        writes, [&](const RecordWrite& write) { return write.place.segment != segment; });
    auto part = std::make_unique<Group::Part>();
    part->writes = writes.first(static_cast<size_t>(other - writes.begin()));
    StartPart(part.get());
    writes = writes.subspan(part->writes.size());
    group->parts_.push_back(std::move(part));
  }
  return group;
}

void RecordWriter::StartPart(Group::Part* part) {
  const uint32_t segment = part->writes.front().place.segment;
  Result<std::shared_ptr<const OpenFile>> file = files_->Writer(segment);
  if (file.ok()) {
    const RecordWrite& last = part->writes.back();
    const Status space = files_->TakeSpace(segment, last.place.offset() + last.record_bytes());
    if (!space.ok()) file = space;
  }
  if (!file.ok()) {
    part->status = file.status();
    return;
  }
  part->file = std::move(file).value();
  for (size_t next = 0; next < part->writes.size();) {
    uint8_t* const buffer = TakeBuffer(part);
    const uint64_t offset = part->writes[next].place.offset();
    size_t bytes = 0;
    next += Fill(part->writes.subspan(next), buffer, &bytes);
    io_->Start({.kind = Transfer::Kind::kWrite,
                .fd = part->file->fd(),
                .offset = offset,
                .data = buffer,
                .bytes = bytes,
                .done = [this, part, buffer, bytes](int64_t moved) {
                  const bool is_whole = moved >= 0 && static_cast<size_t>(moved) == bytes;
                  PieceDone(part, buffer, is_whole ? 0 : moved < 0 ? static_cast<int>(-moved) : EIO);
                }});
  }
}

size_t RecordWriter::Fill(std::span<const RecordWrite> writes, uint8_t* buffer, size_t* bytes) const {
  const uint64_t begin = writes.front().place.offset();
  size_t count = 0;
  for (const RecordWrite& write : writes) {
    const uint64_t record_bytes = write.record_bytes();
    if (*bytes + record_bytes > buffer_bytes_ || write.place.offset() != begin + *bytes) break;
    EncodeRecord(write.page, write.place, {buffer + *bytes, record_bytes});
    *bytes += record_bytes;
    ++count;
  }
  return count;
}

uint8_t* RecordWriter::TakeBuffer(Group::Part* part) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !free_.empty(); });
  uint8_t* const buffer = free_.back();
  free_.pop_back();
  ++part->in_flight;
  return buffer;
}

void RecordWriter::PieceDone(Group::Part* part, uint8_t* buffer, int error) {
  const std::lock_guard lock(mutex_);
  if (error != 0) part->error = error;
  --part->in_flight;
  free_.push_back(buffer);
  done_.notify_all();
}

void RecordWriter::Finish(std::span<const std::unique_ptr<Group>> groups) {
  std::map<uint32_t, std::vector<Group::Part*>> parts_of;  // by segment
  for (const std::unique_ptr<Group>& group : groups) {
    for (const std::unique_ptr<Group::Part>& part : group->parts_) {
      WaitForPart(part.get());
      failpoint_(group->cause_ + ".after_write");
      parts_of[part->writes.front().place.segment].push_back(part.get());
    }
  }
  for (const auto& [segment, parts] : parts_of) {
    const Status status = SyncParts(segment, parts);
    failpoint_(groups.front()->cause_ + ".after_sync");
    for (const Group::Part* part : parts) {
      for (RecordWrite& write : part->writes) write.status = status;
    }
  }
}

void RecordWriter::WaitForPart(Group::Part* part) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [part] { return part->in_flight == 0; });
}

Status RecordWriter::SyncParts(uint32_t segment, std::span<Group::Part* const> parts) {
  int error = 0;
  for (const Group::Part* part : parts) {
    EMBERKV_RETURN_IF_ERROR(part->status);
    if (part->error != 0) error = part->error;
  }
  // The parts of a segment may hold different descriptors of its file; any of them syncs all of it.
  if (error == 0) error = -io_->Sync(parts.front()->file->fd());
  if (error == 0) return Status::Ok();
  return Unavailable(fmt::format("segment {}: {}", segment, std::strerror(error)));
}

}  // namespace emberkv
