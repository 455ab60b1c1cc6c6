#include "cache/store_reader.h"

#include <algorithm>
#include <utility>

namespace emberkv {

StoreReader::StoreReader(KvStore* store, size_t page_bytes)
    : store_(store), page_bytes_(page_bytes), reaper_([this] { ReaperMain(); }) {}

StoreReader::~StoreReader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  overdue_ready_.notify_all();
  reaper_.join();
}

StoreRead StoreReader::Read(std::span<const BlockIdentity> blocks, std::vector<PageHandle> pages,
                            std::chrono::milliseconds timeout) {
  Batch batch;
  batch.pages = std::move(pages);
  Start(blocks, timeout, &batch);
  StoreRead read;
  read.outcomes = batch.pending->Wait();
  read.pages.resize(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (read.outcomes[i] == GetOutcome::kHit) read.pages[i] = std::move(batch.pages[i]);
  }
  if (std::ranges::find(read.outcomes, GetOutcome::kTimeout) != read.outcomes.end()) {
    Abandon(std::move(batch));
  }
  return read;
}

GetOutcome StoreReader::ReasonOfMiss(const BlockIdentity& block,
                                     std::chrono::milliseconds timeout) {
  // Memory of its own, never written unless the block has come meanwhile: a miss takes no page.
  Batch batch;
  batch.scratch.reset(new uint8_t[page_bytes_]);
  Start({&block, 1}, timeout, &batch);
  const GetOutcome outcome = batch.pending->Wait().front();
  if (outcome == GetOutcome::kTimeout) Abandon(std::move(batch));
  return outcome;
}

size_t StoreReader::num_overdue() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_overdue_;
}

void StoreReader::Start(std::span<const BlockIdentity> blocks, std::chrono::milliseconds timeout,
                        Batch* batch) {
  std::vector<GetRequest> requests;
  requests.reserve(blocks.size());
  batch->tokens.reserve(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    // An overdue read outlives the sequence whose tokens the block views.
    batch->tokens.emplace_back(blocks[i].tokens.begin(), blocks[i].tokens.end());
    uint8_t* bytes = batch->scratch ? batch->scratch.get() : batch->pages[i].bytes();
    requests.push_back({blocks[i].hash,
                        blocks[i].parent,
                        blocks[i].provenance,
                        batch->tokens[i],
                        {bytes, page_bytes_}});
  }
  batch->pending = store_->Get(std::move(requests), timeout);
}

void StoreReader::Abandon(Batch batch) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    overdue_.push_back(std::move(batch));
    ++num_overdue_;
  }
  overdue_ready_.notify_one();
}

void StoreReader::ReaperMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    overdue_ready_.wait(lock, [&] { return is_stopping_ || !overdue_.empty(); });
    if (overdue_.empty()) return;
    std::vector<Batch> batches = std::move(overdue_);
    overdue_.clear();
    lock.unlock();
    const size_t num_ended = batches.size();
    batches.clear();  // waits for the store, batch by batch
    lock.lock();
    num_overdue_ -= num_ended;
  }
}

}  // namespace emberkv
