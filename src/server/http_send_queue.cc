#include "server/http_send_queue.h"

#include <algorithm>
#include <utility>

namespace emberkv {

void HttpSendQueue::WakeWriter() {
  if (is_writer_awake_) return;
  is_writer_awake_ = true;
  wake_();
}

HttpSendQueue::Added HttpSendQueue::Add(std::string bytes, bool is_last) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return Added::kClosed;
  buffered_bytes_ += bytes.size();
  if (pending_.empty()) {
    pending_ = std::move(bytes);
  } else {
    pending_ += bytes;
  }
  is_last_added_ = is_last_added_ || is_last;
  WakeWriter();
  return Added::kQueued;
}

HttpSendQueue::Added HttpSendQueue::AddWhenRoom(std::string_view bytes, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool has_room = changed_.wait_for(lock, timeout, [&] {
    return is_closed_ || buffered_bytes_ == 0 || buffered_bytes_ + bytes.size() <= max_bytes_;
  });
  if (is_closed_) return Added::kClosed;
  if (!has_room) return Added::kTimedOut;
  if (!is_writer_awake_) bytes.remove_prefix(send_now_(bytes));
  if (bytes.empty()) return Added::kQueued;
  buffered_bytes_ += bytes.size();
  pending_ += bytes;
  WakeWriter();
  return Added::kQueued;
}

bool HttpSendQueue::HasRoom(size_t bytes) const {
  const std::lock_guard lock(mutex_);
  return is_closed_ || buffered_bytes_ + bytes <= max_bytes_;
}

void HttpSendQueue::Close() {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return;
  is_closed_ = true;
  pending_ = std::string();
  buffered_bytes_ = 0;
  // Also a writer that is awake may be waiting for the client: it must hear of this now.
  wake_();
  changed_.notify_all();
}

HttpSendQueue::Taken HttpSendQueue::Take(std::string* bytes) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return Taken::kClosed;
  bytes->clear();
  if (!pending_.empty()) {
    bytes->swap(pending_);
    return Taken::kBytes;
  }
  is_writer_awake_ = false;
  return std::exchange(is_last_added_, false) ? Taken::kEnd : Taken::kNothing;
}

void HttpSendQueue::NoteWritten(size_t bytes) {
  const std::lock_guard lock(mutex_);
  buffered_bytes_ -= std::min(bytes, buffered_bytes_);
  changed_.notify_all();
}

bool HttpSendQueue::is_closed() const {
  const std::lock_guard lock(mutex_);
  return is_closed_;
}

bool HttpSendQueue::is_last_added() const {
  const std::lock_guard lock(mutex_);
  return is_last_added_;
}

}  // namespace emberkv
