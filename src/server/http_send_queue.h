// The bytes of a connection on their way from worker threads to its one writer, an io thread.
//
// Workers add, the writer takes. A worker that adds to a stream waits while the buffer is full; nobody
// else ever waits. While the writer sleeps nothing is on its way, and a piece of a stream goes out through
// `send_now` without waking it: that sends what the system takes at once, says how much, and leaves errors
// for the writer to find. `wake` tells the writer that there is something to do. Both are called with the
// queue locked, must not call back into it, and are never called again after the writer has seen kClosed.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace emberkv {

class HttpSendQueue {
 public:
  enum class Added { kQueued, kClosed, kTimedOut };
  enum class Taken { kBytes, kNothing, kEnd, kClosed };  // kEnd: the answer's last byte was taken before

  using SendNow = std::function<size_t(std::string_view bytes)>;

  HttpSendQueue(size_t max_bytes, std::function<void()> wake, SendNow send_now)
      : max_bytes_(max_bytes), wake_(std::move(wake)), send_now_(std::move(send_now)) {}

  // Any thread. Does not wait and does not look at the limit: for what is already in memory whole.
  Added Add(std::string bytes, bool is_last);
  // Any thread but an io thread. Waits until `bytes` fit.
  Added AddWhenRoom(std::string_view bytes, std::chrono::milliseconds timeout);
  // Any thread. Whether so many bytes fit now; it stays true until somebody adds.
  bool HasRoom(size_t bytes) const;
  // Any thread. All waiting and later calls see kClosed; what was queued is dropped.
  void Close();

  // Writer only. After kNothing and kEnd the writer sleeps until it is woken.
  Taken Take(std::string* bytes);
  // Writer only: so many of the taken bytes are out.
  void NoteWritten(size_t bytes);
  bool is_closed() const;
  // Whether the last byte of the present answer has been added.
  bool is_last_added() const;

 private:
  void WakeWriter();  // with mutex_ held

  const size_t max_bytes_;
  const std::function<void()> wake_;
  const SendNow send_now_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string pending_;         // guarded by mutex_
  size_t buffered_bytes_ = 0;   // guarded by mutex_: pending_ and what the writer took and has not written
  bool is_last_added_ = false;  // guarded by mutex_
  bool is_writer_awake_ = false;  // guarded by mutex_
  bool is_closed_ = false;        // guarded by mutex_
};

}  // namespace emberkv
