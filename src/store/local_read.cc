// LocalStore's reads. What the page cache holds is copied and verified at once by the calling thread and those
// that help it; the rest is read ahead of Wait into buffers of its own, which outlive a caller who does not
// wait for a hung disk.
#include <fcntl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <new>
#include <utility>

#include "store/local_store.h"

namespace emberkv {
namespace {

// Reads of a batch under way at once: enough for the device, bounded memory however long the batch.
constexpr size_t kReadAhead = 24;
// Reads under way in the whole store. Beyond them the device is hung or swamped: more would not help.
constexpr size_t kMaxReads = 512;
// Reads from memory that are shared among threads at once, and how many a thread takes at a time.
constexpr size_t kMemoryReads = 64;
constexpr int64_t kMemoryReadsPerShare = 4;
// Pages looked up at once by a scrub.
constexpr size_t kScrubPages = 64;

// Records that arrived, for whoever waits. Outlives its batch when a read does.
struct Arrival {
  size_t read = 0;
  std::shared_ptr<uint8_t[]> record;
  int64_t moved = 0;
};

class Mailbox {
 public:
  void Deliver(Arrival arrival) {
    const std::lock_guard lock(mutex_);
    arrivals_.push_back(std::move(arrival));
    arrived_.notify_one();
  }

  // Empty after the deadline.
  std::vector<Arrival> Collect(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    arrived_.wait_until(lock, deadline, [this] { return !arrivals_.empty(); });
    return std::exchange(arrivals_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Arrival> arrivals_;  // guarded by mutex_
};

}  // namespace

class LocalStore::Reads : public PendingGet {
 public:
  Reads(LocalStore* store, std::vector<GetRequest> requests, std::chrono::milliseconds timeout)
      : store_(store), timeout_(timeout), requests_(std::move(requests)), reads_(requests_.size()) {
    std::vector<BlockHash> keys;
    keys.reserve(requests_.size());
    for (const GetRequest& request : requests_) keys.push_back(request.key);
    const std::vector<std::optional<PageEntry>> entries = store_->index_->Find(keys);
    for (size_t i = 0; i < reads_.size(); ++i) {
      reads_[i].entry = entries[i];
      if (entries[i]) buffer_bytes_ = std::max<size_t>(buffer_bytes_, entries[i]->record_bytes());
    }
    StartMore();
  }

  std::vector<GetOutcome> Wait() override {
    if (is_settled_) return outcomes_;
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    while (in_flight_ > 0) {
      std::vector<Arrival> arrivals = mailbox_->Collect(deadline);
      if (arrivals.empty()) break;
      for (Arrival& arrival : arrivals) Take(arrival);
      StartMore();
    }
    Settle();
    return outcomes_;
  }

 private:
  struct Read {
    std::optional<PageEntry> entry;
    std::optional<GetOutcome> outcome;
  };

  // A pinned page that memory may hold.
  struct MemoryRead {
    size_t place = 0;
    int fd = -1;
    bool is_there = false;
  };

  void StartMore() {
    while (next_ < reads_.size() && in_flight_ < kReadAhead) {
      std::vector<MemoryRead> from_memory;
      while (next_ < reads_.size() && in_flight_ < kReadAhead && from_memory.size() < kMemoryReads) {
        Start(next_++, &from_memory);
      }
      ReadFromMemory(from_memory);
    }
  }

  void Start(size_t i, std::vector<MemoryRead>* from_memory) {
    Read& read = reads_[i];
    const GetRequest& request = requests_[i];
    if (!KeyMatchesParts(request)) {
      read.outcome = GetOutcome::kCorrupt;
      read.entry.reset();  // the record may be sound
      return;
    }
    const Result<SegmentFiles::Readers> file = Pin(&read);
    if (!read.entry) return;  // Settle finds out why it is not there
    if (!file.ok()) {
      read.outcome = GetOutcome::kFailed;
      return;
    }
    const RecordPlace place = read.entry->place;
    if (read.entry->payload_bytes != request.payload.size() ||
        read.entry->num_tokens != request.tokens.size()) {
      read.outcome = GetOutcome::kCorrupt;
      store_->files_.Unpin(place.segment);
      return;
    }
    // Memory is for what is read again and again: a first read goes past the page cache, at the rate of
    // the device and without pushing out what was read before. To ask the page cache alone starts I/O.
    if (!store_->read_lately_.Note(request.key)) return ReadFromDisk(i, file->direct);
    from_memory->push_back({.place = i, .fd = file->cached});
  }

  // A page may move between looking it up and pinning it; then it is looked up again.
  Result<SegmentFiles::Readers> Pin(Read* read) {
    Result<SegmentFiles::Readers> file = NotFound("page");
    for (int tries = 0; tries < 3 && read->entry; ++tries) {
      file = store_->files_.Pin(read->entry->place.segment, read->entry->place.generation);
      if (file.ok() || file.status().code() != StatusCode::kNotFound) return file;
      const BlockHash& key = requests_[static_cast<size_t>(read - reads_.data())].key;
      read->entry = store_->index_->Find({&key, 1}).front();
    }
    return file;
  }

  void ReadFromMemory(std::span<MemoryRead> reads) {
    store_->ShareAmongReaders(static_cast<int64_t>(reads.size()), [&](int64_t begin, int64_t end, int) {
      std::vector<uint8_t> frame;
      for (int64_t i = begin; i < end; ++i) {
        MemoryRead& read = reads[static_cast<size_t>(i)];
        read.is_there = CopyFromMemory(read.place, read.fd, &frame);
      }
    });
    for (const MemoryRead& read : reads) {
      if (read.is_there) {
        store_->files_.Unpin(reads_[read.place].entry->place.segment);
      } else {
        ReadFromDisk(read.place, read.fd);
      }
    }
  }

  // `frame` is room for what surrounds the payload.
  bool CopyFromMemory(size_t i, int fd, std::vector<uint8_t>* frame) {
    const PageEntry& entry = *reads_[i].entry;
    const std::span<uint8_t> payload = requests_[i].payload;
    const size_t head_bytes = RecordHeadBytes(entry.num_tokens);
    const size_t padding_bytes = entry.record_bytes() - head_bytes - payload.size();
    frame->resize(head_bytes + padding_bytes);
    const iovec into[] = {{frame->data(), head_bytes},
                          {payload.data(), payload.size()},
                          {frame->data() + head_bytes, padding_bytes}};
    const int64_t moved = store_->io_->ReadCached(fd, entry.place.offset(), into);
    if (moved != static_cast<int64_t>(entry.record_bytes())) return false;
    const std::span<const uint8_t> around = *frame;
    Judge(i, {around.first(head_bytes), payload, around.subspan(head_bytes)});
    return true;
  }

  void ReadFromDisk(size_t i, int fd) {
    if (store_->reads_in_flight_.fetch_add(1) >= kMaxReads) {
      store_->reads_in_flight_.fetch_sub(1);
      store_->files_.Unpin(reads_[i].entry->place.segment);
      reads_[i].outcome = GetOutcome::kTimeout;
      return;
    }
    ++in_flight_;
    const PageEntry& entry = *reads_[i].entry;
    const size_t bytes = entry.record_bytes();
    std::shared_ptr<uint8_t[]> record = TakeBuffer(bytes);
    uint8_t* const data = record.get();
    store_->io_->Start({.kind = Transfer::Kind::kRead,
                        .fd = fd,
                        .offset = entry.place.offset(),
                        .data = data,
                        .bytes = bytes,
                        .done = [store = store_, mailbox = mailbox_, record = std::move(record), i,
                                 segment = entry.place.segment](int64_t moved) {
                          store->files_.Unpin(segment);
                          store->reads_in_flight_.fetch_sub(1);
                          mailbox->Deliver({i, record, moved});
                        }});
  }

  // That of a read that is done, where there is one: new memory costs more than the copy out of it.
  std::shared_ptr<uint8_t[]> TakeBuffer(size_t bytes) {
    if (bytes > buffer_bytes_ || free_buffers_.empty()) {
      return {new (std::align_val_t{kSlotBytes}) uint8_t[std::max(bytes, buffer_bytes_)],
              [](uint8_t* p) { ::operator delete[](p, std::align_val_t{kSlotBytes}); }};
    }
    std::shared_ptr<uint8_t[]> buffer = std::move(free_buffers_.back());
    free_buffers_.pop_back();
    return buffer;
  }

  void Take(Arrival& arrival) {
    --in_flight_;
    Read& read = reads_[arrival.read];
    const uint64_t bytes = read.entry->record_bytes();
    if (arrival.moved < 0) {
      read.outcome = GetOutcome::kFailed;
    } else if (static_cast<uint64_t>(arrival.moved) != bytes) {
      read.outcome = GetOutcome::kCorrupt;  // the file was truncated
    } else {
      const std::span<uint8_t> payload = requests_[arrival.read].payload;
      const RecordPieces pieces =
          SplitRecord({arrival.record.get(), bytes}, read.entry->num_tokens, payload.size());
      Judge(arrival.read, pieces);
      if (read.outcome == GetOutcome::kHit && !payload.empty()) {
        std::memcpy(payload.data(), pieces.payload.data(), payload.size());
      }
    }
    if (bytes <= buffer_bytes_) free_buffers_.push_back(std::move(arrival.record));
  }

  void Judge(size_t i, const RecordPieces& pieces) {
    const bool is_answer = RecordAnswers(pieces, reads_[i].entry->place, requests_[i]);
    reads_[i].outcome = is_answer ? GetOutcome::kHit : GetOutcome::kCorrupt;
  }

  // Extends what was served, quarantines what was corrupt, says why the rest is not there, counts.
  void Settle() {
    is_settled_ = true;
    std::vector<StoreIndex::KeyedEntry> corrupt;
    std::vector<BlockHash> to_extend;
    std::vector<size_t> extending;
    for (size_t i = 0; i < reads_.size(); ++i) {
      const Read& read = reads_[i];
      if (read.outcome == GetOutcome::kCorrupt && read.entry) {
        corrupt.emplace_back(requests_[i].key, *read.entry);
      }
      if (read.outcome == GetOutcome::kHit && store_->NeedsExtending(*read.entry)) {
        to_extend.push_back(requests_[i].key);
        extending.push_back(i);
      }
    }
    store_->Quarantine(corrupt);
    const std::vector<bool> is_there = store_->Extend(to_extend);
    for (size_t i = 0; i < extending.size(); ++i) {
      // It had expired and its space was taken while it was read: it cannot be promised again.
      if (!is_there[i]) {
        reads_[extending[i]].outcome.reset();
        reads_[extending[i]].entry.reset();
      }
    }
    Count();
  }

  void Count() {
    const auto is_absent = [](const Read& read) { return !read.outcome && !read.entry; };
    if (std::ranges::any_of(reads_, is_absent)) store_->ReadMissesOnce();
    const std::lock_guard lock(store_->tally_mutex_);
    StoreStats& counters = store_->counters_;
    outcomes_.reserve(reads_.size());
    for (size_t i = 0; i < reads_.size(); ++i) {
      const GetOutcome absent =
          reads_[i].entry || i >= next_ ? GetOutcome::kTimeout : store_->misses_.ReasonOf(requests_[i].key);
      const GetOutcome outcome = reads_[i].outcome.value_or(absent);
      outcomes_.push_back(outcome);
      switch (outcome) {
        case GetOutcome::kHit:
          ++counters.get_hits;
          counters.bytes_read += requests_[i].payload.size();
          break;
        case GetOutcome::kCorrupt:
          ++counters.get_corrupt;
          break;
        case GetOutcome::kTimeout:
          ++counters.get_timeouts;
          break;
        case GetOutcome::kFailed:
          ++counters.get_failed;
          break;
        case GetOutcome::kNeverSeen:
        case GetOutcome::kExpired:
        case GetOutcome::kRefused:
        case GetOutcome::kQuarantined:
          ++counters.get_misses;
          break;
      }
    }
  }

  LocalStore* const store_;
  const std::chrono::milliseconds timeout_;
  const std::vector<GetRequest> requests_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();

  std::vector<Read> reads_;
  size_t next_ = 0;       // reads before it were started or needed no reading
  size_t in_flight_ = 0;
  size_t buffer_bytes_ = 0;  // of the largest record, as far as is known
  std::vector<std::shared_ptr<uint8_t[]>> free_buffers_;  // of at least that size
  bool is_settled_ = false;
  std::vector<GetOutcome> outcomes_;
};

// One batch at a time has the help of the other threads; a batch that comes meanwhile has its own.
void LocalStore::ShareAmongReaders(int64_t reads, const ThreadPool::Body& body) {
  const std::unique_lock lock(readers_mutex_, std::try_to_lock);
  if (lock && reads > kMemoryReadsPerShare) {
    readers_.ParallelFor(reads, kMemoryReadsPerShare, body);
  } else if (reads > 0) {
    body(0, reads, 0);
  }
}

std::unique_ptr<PendingGet> LocalStore::Get(std::vector<GetRequest> requests,
                                            std::chrono::milliseconds timeout) {
  return std::make_unique<Reads>(this, std::move(requests), timeout);
}

Result<std::vector<uint8_t>> LocalStore::ReadRecord(const PageEntry& entry, bool from_disk) {
  return ReadStart(entry, entry.record_bytes(), from_disk);
}

// The first bytes of a record; zeros beyond the end of a file that was truncated.
Result<std::vector<uint8_t>> LocalStore::ReadStart(const PageEntry& entry, uint64_t bytes, bool from_disk) {
  EMBERKV_ASSIGN_OR_RETURN(const SegmentFiles::Readers file,
                           files_.Pin(entry.place.segment, entry.place.generation));
  const int fd = file.cached;
  if (from_disk) {
    ::posix_fadvise(fd, static_cast<off_t>(entry.place.offset()), static_cast<off_t>(bytes),
                    POSIX_FADV_DONTNEED);
  }
  std::vector<uint8_t> data(bytes);
  Mailbox mailbox;
  io_->Start({.kind = Transfer::Kind::kRead,
              .fd = fd,
              .offset = entry.place.offset(),
              .data = data.data(),
              .bytes = bytes,
              .done = [&mailbox](int64_t moved) { mailbox.Deliver({0, nullptr, moved}); }});
  const int64_t moved = mailbox.Collect(std::chrono::steady_clock::time_point::max()).front().moved;
  files_.Unpin(entry.place.segment);
  if (moved < 0) return Unavailable(std::string("record: ") + std::strerror(static_cast<int>(-moved)));
  std::fill(data.begin() + moved, data.end(), uint8_t{0});
  return data;
}

Result<PageHead> LocalStore::ReadHead(const StoreIndex::KeyedEntry& page) {
  const auto& [key, entry] = page;
  const size_t bytes = RecordHeadBytes(entry.num_tokens);
  EMBERKV_ASSIGN_OR_RETURN(const std::vector<uint8_t> head, ReadStart(entry, bytes, false));
  return ParseHead(head, key);
}

ScrubReport LocalStore::Scrub(uint64_t max_bytes) {
  const std::lock_guard lock(scrub_mutex_);
  ScrubReport report;
  while (report.bytes < max_bytes && !report.is_complete) {
    const auto pages = index_->PagesAfter(scrubbed_to_, kScrubPages);
    if (!pages.ok() || pages->empty()) {
      report.is_complete = pages.ok();
      scrubbed_to_ = {};
      break;
    }
    std::vector<StoreIndex::KeyedEntry> corrupt;
    for (const auto& [key, entry] : *pages) {
      if (report.bytes >= max_bytes) break;
      scrubbed_to_ = key;
      const Result<std::vector<uint8_t>> record = ReadRecord(entry, true);
      if (!record.ok()) {
        // kNotFound: it moved or went since it was looked up.
        report.failed += record.status().code() != StatusCode::kNotFound;
        continue;
      }
      ++report.pages;
      report.bytes += record->size();
      const Result<ParsedRecord> sound = ParseRecord(*record, entry.place);
      if (!sound.ok() || sound->page.key != key) corrupt.emplace_back(key, entry);
    }
    report.corrupt += corrupt.size();
    Quarantine(corrupt);
  }
  return report;
}

Result<std::vector<StoreIndex::KeyedEntry>> LocalStore::List(const BlockHash& after, size_t limit) const {
  return index_->PagesAfter(after, limit);
}

}  // namespace emberkv
