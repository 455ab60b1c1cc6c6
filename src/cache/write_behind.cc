#include "cache/write_behind.h"

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

// Hashes that wait to be touched: 2 MB at most.
constexpr size_t kMaxTouches = 1 << 16;

}  // namespace

WriteBehind::WriteBehind(KvStore* store, size_t page_bytes, size_t max_queued_pages,
                         size_t batch_pages)
    : store_(store),
      page_bytes_(page_bytes),
      max_queued_pages_(max_queued_pages),
      batch_pages_(batch_pages),
      writer_([this] { WriterMain(); }) {}

WriteBehind::~WriteBehind() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  work_ready_.notify_all();
  writer_.join();
}

bool WriteBehind::Push(PageHandle page, const BlockIdentity& block, const Digest& tenant,
                       const StoreLimits& limits) {
  Entry entry{std::move(page), block, {block.tokens.begin(), block.tokens.end()}, tenant, limits};
  entry.block.tokens = entry.tokens;  // the vector's elements stay where they are when it moves
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++stats_.offered;
    if (stats_.queued_pages >= max_queued_pages_) {
      ++stats_.dropped;
      return false;
    }
    ++stats_.queued_pages;
    queue_.push_back(std::move(entry));
  }
  work_ready_.notify_one();
  return true;
}

void WriteBehind::Touch(std::span<const BlockHash> blocks) {
  if (blocks.empty()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const BlockHash& block : blocks) {
      if (touches_.size() < kMaxTouches) {
        touches_.insert(block);
      } else if (!touches_.contains(block)) {
        ++stats_.touches_dropped;
      }
    }
  }
  work_ready_.notify_one();
}

bool WriteBehind::Drop(const Digest& tenant, std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const size_t dropped = std::erase_if(queue_, [&](const Entry& entry) { return entry.tenant == tenant; });
  stats_.dropped += dropped;
  stats_.queued_pages -= dropped;
  if (queue_.empty() && touches_.empty() && !is_writing_) idle_.notify_all();
  const uint64_t batch = batches_ + (is_writing_ ? 1 : 0);
  return written_.wait_until(lock, std::chrono::steady_clock::now() + timeout,
                             [&] { return batches_ >= batch; });
}

bool WriteBehind::Flush(std::chrono::milliseconds timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return idle_.wait_until(lock, std::chrono::steady_clock::now() + timeout,
                          [&] { return queue_.empty() && touches_.empty() && !is_writing_; });
}

WriteBehindStats WriteBehind::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void WriteBehind::WriterMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    work_ready_.wait(lock, [&] { return is_stopping_ || !queue_.empty() || !touches_.empty(); });
    if (is_stopping_) break;
    is_writing_ = true;
    std::vector<Entry> batch;
    while (!queue_.empty() && batch.size() < batch_pages_) {
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    const std::vector<BlockHash> touched(touches_.begin(), touches_.end());
    touches_.clear();
    lock.unlock();

    std::vector<PutOutcome> outcomes;
    if (!batch.empty()) outcomes = Write(batch);
    if (!touched.empty()) store_->Touch(touched);
    const size_t num_written = batch.size();
    batch.clear();  // unpins: the copies are durable, or never will be

    lock.lock();
    is_writing_ = false;
    ++batches_;
    written_.notify_all();
    stats_.queued_pages -= num_written;
    for (const PutOutcome outcome : outcomes) ++stats_.outcomes[static_cast<size_t>(outcome)];
    if (queue_.empty() && touches_.empty()) idle_.notify_all();
  }
  stats_.dropped += queue_.size();
  stats_.queued_pages -= queue_.size();
  queue_.clear();
}

std::vector<PutOutcome> WriteBehind::Write(const std::vector<Entry>& batch) {
  std::vector<PageRecord> records;
  records.reserve(batch.size());
  for (const Entry& entry : batch) {
    records.push_back({entry.block.hash,
                       entry.block.parent,
                       entry.block.provenance,
                       entry.tenant,
                       entry.tokens,
                       {entry.page.bytes(), page_bytes_},
                       entry.limits});
  }
  return store_->Put(records);
}

}  // namespace emberkv
