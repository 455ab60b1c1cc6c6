// Where an answer goes: the part of an HTTP exchange that generation needs, so that tests can stand in for it.
//
// One answer per channel: Reply, or BeginStream, Write and EndStream. Used by one thread at a time, but for gone().
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <string_view>

#include "server/http_message.h"

namespace emberkv {

class ReplyChannel {
 public:
  virtual ~ReplyChannel() = default;

  // All three: false when the client is gone.
  virtual bool Reply(int status, const HttpHeaders& headers, std::string body) = 0;
  virtual bool BeginStream(int status, const HttpHeaders& headers) = 0;
  virtual bool Write(std::string_view text) = 0;  // may wait for a slow client
  virtual void EndStream() = 0;
  // Whether Write would not wait.
  virtual bool HasRoom(size_t /*bytes*/) const { return true; }

  virtual const std::atomic<bool>& gone() const = 0;  // set once the client has left
};

}  // namespace emberkv
