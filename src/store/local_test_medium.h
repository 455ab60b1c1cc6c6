// What tests of the local store do to its medium: a directory of their own, bytes changed behind the
// store's back, I/O that fails or hangs on demand.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "store/record_format.h"
#include "store/segment_io.h"
#include "store/store_format.h"
#include "store/store_index.h"

namespace emberkv {

// Removed with all that is in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(::testing::TempDir() + "emberkv_store_XXXXXX") {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string SegmentPath(const std::string& directory, uint32_t segment) {
  const std::string digits = std::to_string(segment);
  return directory + "/segment-" + std::string(8 - digits.size(), '0') + digits;
}

// Turns a store whose pages have no retention of their own into what version 1 left: it knew no rows of
// tenants and misses, and wrote all others as they are.
inline void MakeVersion1(const std::string& directory) {
  const auto index = StoreIndex::Open(directory + "/index").value();
  const std::vector<TenantEntry> tenants = index->Tenants().value();
  IndexBatch batch;
  for (const TenantEntry& tenant : tenants) batch.RemoveTenant(tenant.tenant);
  ASSERT_TRUE(index->Commit(batch).ok());
  StoreFormat format = ReadOrWriteFormat(directory, 0).value();
  format.version = 1;
  ASSERT_TRUE(WriteFormat(directory, format).ok());
}

// Bytes of a stored record, changed behind the store's back.
class StoredBytes {
 public:
  StoredBytes(const std::string& directory, const RecordPlace& place)
      : fd_(::open(SegmentPath(directory, place.segment).c_str(), O_RDWR)), offset_(place.offset()) {
    EXPECT_GE(fd_, 0);
  }
  ~StoredBytes() { ::close(fd_); }
  StoredBytes(const StoredBytes&) = delete;
  StoredBytes& operator=(const StoredBytes&) = delete;

  std::vector<uint8_t> Read(size_t bytes) const {
    std::vector<uint8_t> data(bytes);
    EXPECT_EQ(::pread(fd_, data.data(), bytes, static_cast<off_t>(offset_)), static_cast<ssize_t>(bytes));
    return data;
  }
  void Write(std::span<const uint8_t> data, uint64_t at = 0) const {
    EXPECT_EQ(::pwrite(fd_, data.data(), data.size(), static_cast<off_t>(offset_ + at)),
              static_cast<ssize_t>(data.size()));
  }
  void Flip(uint64_t at, uint8_t mask = 1) const {
    uint8_t byte = 0;
    EXPECT_EQ(::pread(fd_, &byte, 1, static_cast<off_t>(offset_ + at)), 1);
    byte ^= mask;
    Write({&byte, 1}, at);
  }

 private:
  const int fd_;
  const uint64_t offset_;
};

// Segment I/O with faults that a test switches on: an errno for each kind of call, and reads that hang.
class FaultySegmentIo : public SegmentIo {
 public:
  std::atomic<int> open_error{0};
  std::atomic<int> allocate_error{0};
  std::atomic<int> sync_error{0};
  std::atomic<int> read_error{0};
  std::atomic<int> write_error{0};
  std::atomic<bool> holds_reads{false};
  // The next syncs fail, each not before so many bytes were written.
  std::atomic<int> syncs_to_fail{0};
  std::atomic<uint64_t> written_before_sync_fails{0};
  std::atomic<bool> is_memory_cold{false};
  std::atomic<uint64_t> bytes_written{0};

  ~FaultySegmentIo() override { Release(); }

  void Release() {
    holds_reads = false;
    std::vector<Transfer> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (Transfer& transfer : held) inner_->Start(std::move(transfer));
  }

  int Open(const std::string& path, int flags) override {
    return open_error != 0 ? -open_error : inner_->Open(path, flags);
  }
  int Allocate(int fd, uint64_t offset, uint64_t bytes) override {
    return allocate_error != 0 ? -allocate_error : inner_->Allocate(fd, offset, bytes);
  }
  int Sync(int fd) override {
    if (syncs_to_fail > 0) {
      --syncs_to_fail;
      while (bytes_written < written_before_sync_fails) std::this_thread::yield();
      return -EIO;
    }
    return sync_error != 0 ? -sync_error : inner_->Sync(fd);
  }
  void Start(Transfer transfer) override {
    const bool is_read = transfer.kind == Transfer::Kind::kRead;
    const int error = is_read ? read_error : write_error;
    if (error != 0) {
      transfer.done(-error);
    } else if (is_read && holds_reads) {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(transfer));
    } else {
      if (!is_read) bytes_written += transfer.bytes;
      inner_->Start(std::move(transfer));
    }
  }
  int64_t ReadCached(int fd, uint64_t offset, std::span<const iovec> into) override {
    const bool is_cold = is_memory_cold || holds_reads || read_error != 0;
    return is_cold ? -EAGAIN : inner_->ReadCached(fd, offset, into);
  }
  void Drain() override { inner_->Drain(); }
  std::string Description() const override { return "faulty " + inner_->Description(); }

 private:
  const std::unique_ptr<SegmentIo> inner_ = MakeSegmentIo();
  std::mutex mutex_;
  std::vector<Transfer> held_;  // guarded by mutex_
};

}  // namespace emberkv
