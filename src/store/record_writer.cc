#include "store/record_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
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

void RecordWriter::Write(std::span<RecordWrite> writes, const std::string& cause) {
  while (!writes.empty()) {
    const uint32_t segment = writes.front().place.segment;
    const auto other = std::ranges::find_if(
        writes, [&](const RecordWrite& write) { return write.place.segment != segment; });
    const auto group = writes.first(static_cast<size_t>(other - writes.begin()));
    const Status status = WriteSegment(group, cause);
    for (RecordWrite& write : group) write.status = status;
    writes = writes.subspan(group.size());
  }
}

Status RecordWriter::WriteSegment(std::span<RecordWrite> writes, const std::string& cause) {
  EMBERKV_ASSIGN_OR_RETURN(const int fd, files_->Writer(writes.front().place.segment));
  failpoint_(cause + ".before_write");
  for (size_t next = 0; next < writes.size();) {
    uint8_t* const buffer = TakeBuffer();
    const uint64_t offset = writes[next].place.offset();
    size_t bytes = 0;
    next += Fill(writes.subspan(next), buffer, &bytes);
    io_->Start({.kind = Transfer::Kind::kWrite,
                .fd = fd,
                .offset = offset,
                .data = buffer,
                .bytes = bytes,
                .done = [this, buffer, bytes](int64_t moved) {
                  const std::lock_guard lock(mutex_);
                  if (moved < 0) error_ = static_cast<int>(-moved);
                  if (moved >= 0 && static_cast<size_t>(moved) != bytes) error_ = EIO;
                  free_.push_back(buffer);
                  done_.notify_one();
                }});
  }
  int error = WaitForAll();
  failpoint_(cause + ".after_write");
  if (error == 0) error = -io_->Sync(fd);
  failpoint_(cause + ".after_sync");
  if (error == 0) return Status::Ok();
  return Unavailable(fmt::format("segment {}: {}", writes.front().place.segment, std::strerror(error)));
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

uint8_t* RecordWriter::TakeBuffer() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return !free_.empty(); });
  uint8_t* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

int RecordWriter::WaitForAll() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return free_.size() == buffers_.size(); });
  return std::exchange(error_, 0);
}

}  // namespace emberkv
