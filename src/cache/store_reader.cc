#include "cache/store_reader.h"

#include <algorithm>
#include <utility>

namespace emberkv {
namespace {

// Enough to ask for several requests at once; what waits for its turn waits on its own time.
constexpr size_t kMaxAskers = 8;
// The store's own deadline passes first: then it says which pages came in time.
constexpr std::chrono::milliseconds kGrace{50};

}  // namespace

// Of one caller, with all that the store may touch while it is under way.
struct StoreReader::Question {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<PageHandle> pages;
  std::unique_ptr<uint8_t[]> scratch;
  std::vector<GetRequest> requests;  // views of the above
  std::chrono::milliseconds timeout;
  std::vector<BlockHash> keys;  // for Contains
  std::unique_ptr<PendingGet> pending;  // the last to come and the first to go

  // The answer. Guarded by the reader's mutex_ until it is there.
  std::vector<GetOutcome> outcomes;
  std::vector<bool> is_stored;
  bool is_answered = false;
  bool is_overdue = false;  // guarded by mutex_
};

StoreReader::StoreReader(KvStore* store, size_t page_bytes) : store_(store), page_bytes_(page_bytes) {}

StoreReader::~StoreReader() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
  }
  asked_.notify_all();
  for (std::thread& asker : askers_) asker.join();
}

StoreRead StoreReader::Read(std::span<const BlockIdentity> blocks, std::vector<PageHandle> pages,
                            std::chrono::milliseconds timeout) {
  const std::shared_ptr<Question> question = MakeRead(blocks, timeout);
  question->pages = std::move(pages);
  for (size_t i = 0; i < blocks.size(); ++i) {
    question->requests[i].payload = {question->pages[i].bytes(), page_bytes_};
  }
  StoreRead read{std::vector<GetOutcome>(blocks.size(), GetOutcome::kTimeout),
                 std::vector<PageHandle>(blocks.size())};
  if (!Ask(question, timeout)) return read;
  read.outcomes = question->outcomes;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (read.outcomes[i] == GetOutcome::kTimeout) continue;  // the store may still write to it
    PageHandle page = std::move(question->pages[i]);
    if (read.outcomes[i] == GetOutcome::kHit) read.pages[i] = std::move(page);
  }
  return read;
}

GetOutcome StoreReader::ReasonOfMiss(const BlockIdentity& block, std::chrono::milliseconds timeout) {
  // Memory of its own, never written unless the block has come meanwhile: a miss takes no page.
  const std::shared_ptr<Question> question = MakeRead({&block, 1}, timeout);
  question->scratch.reset(new uint8_t[page_bytes_]);
  question->requests[0].payload = {question->scratch.get(), page_bytes_};
  return Ask(question, timeout) ? question->outcomes.front() : GetOutcome::kTimeout;
}

std::optional<std::vector<bool>> StoreReader::Contains(std::vector<BlockHash> keys,
                                                       std::chrono::milliseconds timeout) {
  const auto question = std::make_shared<Question>();
  question->keys = std::move(keys);
  if (!Ask(question, timeout)) return std::nullopt;
  return question->is_stored;
}

size_t StoreReader::num_overdue() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return num_overdue_;
}

std::shared_ptr<StoreReader::Question> StoreReader::MakeRead(std::span<const BlockIdentity> blocks,
                                                             std::chrono::milliseconds timeout) const {
  auto question = std::make_shared<Question>();
  question->timeout = timeout;
  question->tokens.reserve(blocks.size());
  for (const BlockIdentity& block : blocks) {
    // An overdue read outlives the sequence whose tokens the block views.
    question->tokens.emplace_back(block.tokens.begin(), block.tokens.end());
    question->requests.push_back(
        {block.hash, block.parent, block.provenance, question->tokens.back(), {}});
  }
  return question;
}

bool StoreReader::Ask(const std::shared_ptr<Question>& question, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout + kGrace;
  std::unique_lock<std::mutex> lock(mutex_);
  queue_.push_back(question);
  if (num_idle_ < queue_.size() && askers_.size() < kMaxAskers) {
    askers_.emplace_back([this] { AskerMain(); });
  }
  asked_.notify_one();
  if (answered_.wait_until(lock, deadline, [&] { return question->is_answered; })) return true;
  question->is_overdue = true;
  ++num_overdue_;
  return false;
}

void StoreReader::AskerMain() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    ++num_idle_;
    asked_.wait(lock, [&] { return is_stopping_ || !queue_.empty(); });
    --num_idle_;
    if (queue_.empty()) return;
    std::shared_ptr<Question> question = std::move(queue_.front());
    queue_.pop_front();
    if (!question->is_overdue) {
      lock.unlock();
      std::vector<bool> is_stored;
      std::vector<GetOutcome> outcomes;
      if (question->requests.empty()) {
        is_stored = store_->Contains(question->keys);
      } else {
        question->pending = store_->Get(question->requests, question->timeout);
        outcomes = question->pending->Wait();
      }
      lock.lock();
      question->is_stored = std::move(is_stored);
      question->outcomes = std::move(outcomes);
      const bool is_late = std::ranges::find(question->outcomes, GetOutcome::kTimeout) != question->outcomes.end();
      if (is_late && !question->is_overdue) {
        question->is_overdue = true;
        ++num_overdue_;
      }
      question->is_answered = true;
      answered_.notify_all();
    }
    lock.unlock();
    question->pending.reset();  // waits for the store
    const bool was_overdue = [&] {
      const std::lock_guard<std::mutex> again(mutex_);
      return question->is_overdue;
    }();
    question.reset();  // the pages of an overdue read go back to the pool
    lock.lock();
    if (was_overdue) --num_overdue_;
  }
}

}  // namespace emberkv
