// The end of an engine whose disk hangs.
#include "engine/engine_parts.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace emberkv {
namespace {

constexpr size_t kPageBytes = 8192;

// Writes hang until they are let go.
class HungWrites : public SegmentIo {
 public:
  void AwaitWrite() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_.empty(); });
  }
  // Whether all bytes that the held writes move are there to be read, `value` among them.
  bool HoldsByte(uint8_t value) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(held_, [value](const Transfer& transfer) {
      return std::count(transfer.data, transfer.data + transfer.bytes, value) > 0;
    });
  }
  void LetGo() {
    const std::lock_guard lock(mutex_);
    hangs_ = false;
    for (Transfer& transfer : std::exchange(held_, {})) inner_->Start(std::move(transfer));
    changed_.notify_all();
  }

  int Open(const std::string& path, int flags) override { return inner_->Open(path, flags); }
  int Allocate(int fd, uint64_t offset, uint64_t bytes) override {
    return inner_->Allocate(fd, offset, bytes);
  }
  int Sync(int fd) override { return inner_->Sync(fd); }
  void Start(Transfer transfer) override {
    std::unique_lock lock(mutex_);
    if (!hangs_ || transfer.kind == Transfer::Kind::kRead) {
      lock.unlock();
      inner_->Start(std::move(transfer));
      return;
    }
    held_.push_back(std::move(transfer));
    changed_.notify_all();
  }
  int64_t ReadCached(int fd, uint64_t offset, std::span<const iovec> into) override {
    return inner_->ReadCached(fd, offset, into);
  }
  void Drain() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return held_.empty(); });
    lock.unlock();
    inner_->Drain();
  }
  std::string Description() const override { return "hung writes"; }

 private:
  const std::unique_ptr<SegmentIo> inner_ = MakeSegmentIo();
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hangs_ = true;           // guarded by mutex_, as are those held
  std::vector<Transfer> held_;
};

class EnginePartsTest : public ::testing::Test {
 protected:
  EnginePartsTest() : directory_(::testing::TempDir() + "emberkv_engine_parts_XXXXXX") {
    EXPECT_NE(::mkdtemp(directory_.data()), nullptr);
  }
  ~EnginePartsTest() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<EngineParts> Open(std::shared_ptr<SegmentIo> io) const {
    auto parts = std::make_unique<EngineParts>(1);
    LocalStoreOptions options;
    options.directory = directory_ + "/store";
    options.budget_bytes = uint64_t{64} << 20;
    options.io = std::move(io);
    auto store = LocalStore::Open(std::move(options), parts->clock.get());
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    parts->store = std::move(store).value();
    parts->keeper = std::make_unique<StoreKeeper>(parts->store.get());
    parts->cache = std::make_unique<PageCache>(std::move(PagePool::Make(kPageBytes, 4 * kPageBytes)).value(),
                                               parts->store.get());
    return parts;
  }

  // Seals a block whose page is full of `value`.
  BlockIdentity Seal(EngineParts* parts, uint8_t value) const {
    const BlockIdentity block{HashBlock({}, {}, tokens_), {}, {}, tokens_};
    PageHandle page = std::move(parts->cache->pool()->Acquire()).value();
    std::fill_n(page.bytes(), kPageBytes, value);
    parts->cache->Seal(std::move(page), block, {});
    return block;
  }

  std::string directory_;
  const std::vector<int32_t> tokens_ = std::vector<int32_t>(128, 7);
};

TEST_F(EnginePartsTest, AHungDiskDoesNotHoldUpTheEndAndKeepsItsMemory) {
  auto io = std::make_shared<HungWrites>();
  const std::weak_ptr<HungWrites> left_alone = io;
  std::unique_ptr<EngineParts> parts = Open(io);
  const BlockIdentity block = Seal(parts.get(), 0xa5);
  io->AwaitWrite();
  EXPECT_FALSE(parts->cache->Flush(std::chrono::milliseconds(0)));
  EXPECT_EQ(parts->cache->stats().writes.queued_pages, 1u);
  parts->has_given_up_disk = true;
  parts.reset();
  EXPECT_TRUE(io->HoldsByte(0xa5));  // a sanitizer would see it if the memory were gone

  // Should the disk answer after all, what was left alone ends by itself, and has lost nothing.
  io->LetGo();
  io.reset();
  while (!left_alone.expired()) std::this_thread::yield();
  parts = Open(nullptr);
  EXPECT_EQ(parts->cache->Lookup({&block, 1}).num_blocks(), 1u);
}

TEST_F(EnginePartsTest, TheEndOfASoundStoreIsWaitedFor) {
  for (int i = 0; i < 3; ++i) {
    const std::unique_ptr<EngineParts> parts = Open(nullptr);  // its directory was free
    Seal(parts.get(), 1);
    EXPECT_TRUE(parts->cache->Flush(std::chrono::seconds(30)));
  }
}

}  // namespace
}  // namespace emberkv
