#include "bench/store_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <random>
#include <span>
#include <utility>

#include "base/clock.h"
#include "store/local_store.h"
#include "store/segment_io.h"
#include "store/store_index.h"

namespace emberkv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPageBytes = 113'920;
constexpr size_t kReadBytes = 28 * kSlotBytes;  // a record of such a page
constexpr size_t kPieceBytes = size_t{1} << 20;
constexpr size_t kDepth = 8;
constexpr size_t kLargeBatch = 1024;  // what a long prompt's prefill leaves to be written
constexpr size_t kSmallBatch = 64;
constexpr size_t kGetBatch = 64;
constexpr int kTokens = 128;
constexpr int kWarmUps = 2;  // the store takes a page into memory when it is read again

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double GbPerS(uint64_t bytes, double seconds) { return static_cast<double>(bytes) / seconds / 1e9; }

// Bytes that this process caused to be written to the disk.
uint64_t DiskWrites() {
  std::ifstream io("/proc/self/io");
  std::string name;
  uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "write_bytes:") return value;
  }
  return 0;
}

void DropFromMemory(const std::string& directory) {
  for (const auto& file : fs::recursive_directory_iterator(directory)) {
    const int fd = ::open(file.path().c_str(), O_RDONLY);
    if (fd < 0) continue;
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// Transfers of `bytes` each at the offsets, `kDepth` at a time; seconds.
double TimeTransfers(SegmentIo& io, Transfer::Kind kind, int fd, size_t bytes,
                     const std::vector<uint64_t>& offsets) {
  std::vector<uint8_t*> free;
  for (size_t i = 0; i < kDepth; ++i) {
    free.push_back(new (std::align_val_t{kSlotBytes}) uint8_t[bytes]);
    std::memset(free.back(), static_cast<int>(i), bytes);
  }
  std::mutex mutex;
  std::condition_variable done;
  const double begin = Now();
  for (const uint64_t offset : offsets) {
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return !free.empty(); });
    uint8_t* const data = free.back();
    free.pop_back();
    lock.unlock();
    io.Start({.kind = kind, .fd = fd, .offset = offset, .data = data, .bytes = bytes,
              .done = [&, data](int64_t) {
                const std::lock_guard done_lock(mutex);
                free.push_back(data);
                done.notify_one();
              }});
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return free.size() == kDepth; });
  lock.unlock();
  if (kind == Transfer::Kind::kWrite) ::fdatasync(fd);
  const double seconds = Now() - begin;
  for (uint8_t* data : free) ::operator delete[](data, std::align_val_t{kSlotBytes});
  return seconds;
}

struct DiskLimits {
  double overwrite = 0, random_read = 0;  // GB/s
};

Result<DiskLimits> ProbeDisk(const std::string& directory, uint64_t bytes) {
  const std::string path = directory + "/probe";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0644);
  const std::unique_ptr<SegmentIo> io = MakeSegmentIo();
  std::vector<uint64_t> pieces;
  for (uint64_t offset = 0; offset + kPieceBytes <= bytes; offset += kPieceBytes) pieces.push_back(offset);
  if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) {
    if (fd >= 0) ::close(fd);
    return Unavailable(path + ": cannot be written past the page cache");
  }
  TimeTransfers(*io, Transfer::Kind::kWrite, fd, kPieceBytes, pieces);  // the first time is not overwriting
  DiskLimits limits;
  limits.overwrite = GbPerS(pieces.size() * kPieceBytes,
                            TimeTransfers(*io, Transfer::Kind::kWrite, fd, kPieceBytes, pieces));
  std::mt19937_64 random(1);
  std::vector<uint64_t> records;
  const uint64_t num_places = bytes / kReadBytes;
  for (uint64_t i = 0; i < num_places; ++i) records.push_back(random() % num_places * kReadBytes);
  limits.random_read = GbPerS(records.size() * kReadBytes,
                              TimeTransfers(*io, Transfer::Kind::kRead, fd, kReadBytes, records));
  ::close(fd);
  fs::remove(path);
  return limits;
}

// Page i of a run, without hashing its payload: tokens and key are its own, bytes lie in one pool.
class Pages {
 public:
  Pages() : pool_(64 << 20) {
    std::mt19937_64 random(7);
    for (size_t i = 0; i < pool_.size(); i += 8) {
      const uint64_t bits = random();
      std::memcpy(pool_.data() + i, &bits, 8);
    }
  }

  void Add(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      const auto number = static_cast<int32_t>(tokens_.size());
      tokens_.emplace_back(kTokens, number);
      keys_.push_back(HashBlock({}, {}, tokens_.back()));
    }
  }
  PageRecord Record(size_t i) const {
    return {.key = keys_[i], .parent = {}, .provenance = {}, .tenant = {}, .tokens = tokens_[i],
            .payload = Payload(i)};
  }
  GetRequest Request(size_t i, std::span<uint8_t> into) const {
    return {.key = keys_[i], .parent = {}, .provenance = {}, .tokens = tokens_[i], .payload = into};
  }
  std::span<const uint8_t> Payload(size_t i) const {
    return std::span(pool_).subspan(i * 7919 * 64 % (pool_.size() - kPageBytes) / 64 * 64, kPageBytes);
  }
  const BlockHash& key(size_t i) const { return keys_[i]; }

 private:
  std::vector<uint8_t> pool_;
  std::vector<std::vector<int32_t>> tokens_;
  std::vector<BlockHash> keys_;
};

struct Rates {
  double put = 0, put_small = 0, cold = 0, warm = 0;  // GB/s of payload
  double write_amplification = 0, open_ms = 0;
};

// A clock that runs and can be set ahead: pages expire in an instant.
class ShiftedClock : public Clock {
 public:
  int64_t WallMicros() const override { return clock_.WallMicros() + shift_us_; }
  int64_t MonotonicMicros() const override { return clock_.MonotonicMicros() + shift_us_; }
  std::string BootId() const override { return clock_.BootId(); }
  void Advance(std::chrono::microseconds by) { shift_us_ += by.count(); }

 private:
  SystemClock clock_;
  int64_t shift_us_ = 0;
};

Status Require(bool condition, const char* what) {
  return condition ? Status::Ok() : Unavailable(what);
}

// Seconds, as of the functions below.
Result<double> PutAll(LocalStore& store, const Pages& pages, size_t begin, size_t end, size_t batch_pages) {
  const double start = Now();
  for (size_t i = begin; i < end; i += batch_pages) {
    std::vector<PageRecord> batch;
    for (size_t j = i; j < std::min(end, i + batch_pages); ++j) batch.push_back(pages.Record(j));
    for (const PutOutcome outcome : store.Put(batch)) {
      EMBERKV_RETURN_IF_ERROR(Require(outcome == PutOutcome::kStored, "a put failed"));
    }
  }
  return Now() - start;
}

Result<double> GetAll(LocalStore& store, const Pages& pages, const std::vector<size_t>& order) {
  std::vector<uint8_t> payloads(kGetBatch * kPageBytes);
  const double start = Now();
  for (size_t i = 0; i < order.size(); i += kGetBatch) {
    std::vector<GetRequest> batch;
    for (size_t j = i; j < std::min(order.size(), i + kGetBatch); ++j) {
      batch.push_back(pages.Request(order[j], std::span(payloads).subspan((j - i) * kPageBytes, kPageBytes)));
    }
    for (const GetOutcome outcome : store.Get(std::move(batch), std::chrono::minutes(1))->Wait()) {
      EMBERKV_RETURN_IF_ERROR(Require(outcome == GetOutcome::kHit, "a get missed"));
    }
  }
  return Now() - start;
}

// Rows for pages of a segment that is not there: what a larger store's index holds besides. Their keys ascend,
// spread over all keys, because RocksDB rewrites less of what comes in order.
Status AddIndexEntries(const std::string& directory, uint64_t count) {
  if (count == 0) return Status::Ok();
  EMBERKV_ASSIGN_OR_RETURN(const auto index, StoreIndex::Open(directory + "/index"));
  std::mt19937_64 random(11);
  const uint64_t step = UINT64_MAX / count;
  for (uint64_t i = 0; i < count;) {
    IndexBatch batch;
    for (uint64_t end = std::min<uint64_t>(count, i + 10'000); i < end; ++i) {
      BlockHash key;
      for (size_t at = 0; at < key.bytes.size(); at += 8) {
        const uint64_t bits = at == 0 ? __builtin_bswap64(i * step) : random();
        std::memcpy(key.bytes.data() + at, &bits, 8);
      }
      batch.PutPage(key, {.place = {.segment = UINT32_MAX, .slot = static_cast<uint32_t>(i), .generation = 1},
                          .num_tokens = kTokens,
                          .payload_bytes = kPageBytes,
                          .deadline_us = 1,
                          .tenant = {}});
    }
    EMBERKV_RETURN_IF_ERROR(index->Commit(batch));
  }
  return Status::Ok();
}

// Bytes written to the disk per byte of `count` pages, since `writes_before`.
double Amplification(uint64_t writes_before, size_t count) {
  return static_cast<double>(DiskWrites() - writes_before) / static_cast<double>(count * kPageBytes);
}

std::vector<size_t> Shuffled(size_t begin, size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = begin + i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  return order;
}

// Cold, then, of what fits in memory beside the rest of the machine, warm.
Status TimeGets(std::vector<size_t> order, const std::function<Result<double>(const std::vector<size_t>&)>& get_all,
                Rates* rates) {
  EMBERKV_ASSIGN_OR_RETURN(const double cold, get_all(order));
  rates->cold = GbPerS(order.size() * kPageBytes, cold);
  order.resize(std::min<size_t>(order.size(), (size_t{1} << 30) / kPageBytes));
  for (int i = 0; i < kWarmUps; ++i) EMBERKV_RETURN_IF_ERROR(get_all(order).status());
  EMBERKV_ASSIGN_OR_RETURN(const double warm, get_all(order));
  rates->warm = GbPerS(order.size() * kPageBytes, warm);
  return Status::Ok();
}

// `pages` holds four times `count`.
Result<Rates> BenchLocal(const std::string& directory, const Pages& pages, size_t count, uint64_t index_entries) {
  ShiftedClock clock;
  const uint64_t bytes = count * kReadBytes;
  const LocalStoreOptions options{.directory = directory,
                                  .budget_bytes = bytes + bytes / 4 + (uint64_t{1} << 30),
                                  .segment_bytes = uint64_t{256} << 20};
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<LocalStore> store, LocalStore::Open(options, &clock));
  const auto put = [&](size_t part, size_t batch_pages) {
    clock.Advance(std::chrono::hours(24 * 30));  // what was put before expires
    store->Sweep();
    return PutAll(*store, pages, part * count, (part + 1) * count, batch_pages);
  };
  // The steady state is a store whose segments were written before.
  EMBERKV_RETURN_IF_ERROR(put(3, kLargeBatch).status());
  EMBERKV_RETURN_IF_ERROR(put(0, kLargeBatch).status());
  Rates rates;
  EMBERKV_ASSIGN_OR_RETURN(const double small_seconds, put(2, kSmallBatch));
  rates.put_small = GbPerS(count * kPageBytes, small_seconds);
  const uint64_t writes = DiskWrites();
  EMBERKV_ASSIGN_OR_RETURN(const double seconds, put(1, kLargeBatch));
  rates.put = GbPerS(count * kPageBytes, seconds);
  rates.write_amplification = Amplification(writes, count);
  store.reset();

  EMBERKV_RETURN_IF_ERROR(AddIndexEntries(directory, index_entries));
  DropFromMemory(directory);
  const double start = Now();
  EMBERKV_ASSIGN_OR_RETURN(store, LocalStore::Open(options, &clock));
  EMBERKV_RETURN_IF_ERROR(GetAll(*store, pages, {count}).status());
  rates.open_ms = (Now() - start) * 1e3;
  EMBERKV_RETURN_IF_ERROR(TimeGets(
      Shuffled(count, count), [&](const std::vector<size_t>& order) { return GetAll(*store, pages, order); }, &rates));
  return rates;
}

rocksdb::Options BlobDbOptions() {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 128 << 20;
  options.max_write_buffer_number = 3;
  options.enable_blob_files = true;
  options.min_blob_size = 4096;
  options.blob_file_size = 512 << 20;
  return options;
}

Result<std::unique_ptr<rocksdb::DB>> OpenBlobDb(const std::string& directory) {
  rocksdb::DB* raw = nullptr;
  const rocksdb::Status status = rocksdb::DB::Open(BlobDbOptions(), directory, &raw);
  if (!status.ok()) return Unavailable("RocksDB: " + status.ToString());
  return std::unique_ptr<rocksdb::DB>(raw);
}

Result<Rates> BenchBlobDb(const std::string& directory, const Pages& pages, size_t count) {
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<rocksdb::DB> db, OpenBlobDb(directory));
  const auto key = [&](size_t i) {
    return rocksdb::Slice(reinterpret_cast<const char*>(pages.key(i).bytes.data()), sizeof(BlockHash));
  };
  Rates rates;
  const uint64_t writes = DiskWrites();
  double start = Now();
  for (size_t i = 0; i < count; ++i) {
    const auto payload = pages.Payload(i);
    rocksdb::WriteOptions write;
    write.sync = i % kLargeBatch == kLargeBatch - 1;  // as durable as the store's batches
    const rocksdb::Slice value(reinterpret_cast<const char*>(payload.data()), payload.size());
    EMBERKV_RETURN_IF_ERROR(Require(db->Put(write, key(i), value).ok(), "RocksDB: a put failed"));
  }
  EMBERKV_RETURN_IF_ERROR(Require(db->Flush({}).ok(), "RocksDB: a flush failed"));
  rates.put = GbPerS(count * kPageBytes, Now() - start);
  rates.write_amplification = Amplification(writes, count);
  db.reset();
  DropFromMemory(directory);
  start = Now();
  EMBERKV_ASSIGN_OR_RETURN(db, OpenBlobDb(directory));
  std::vector<uint8_t> copy(kPageBytes);
  const auto get_all = [&](const std::vector<size_t>& order) -> Result<double> {
    const double begin = Now();
    for (const size_t i : order) {
      rocksdb::PinnableSlice value;
      const bool is_there = db->Get({}, db->DefaultColumnFamily(), key(i), &value).ok();
      EMBERKV_RETURN_IF_ERROR(Require(is_there && value.size() == copy.size(), "RocksDB: a get missed"));
      std::memcpy(copy.data(), value.data(), value.size());
    }
    return Now() - begin;
  };
  EMBERKV_RETURN_IF_ERROR(get_all({0}).status());
  rates.open_ms = (Now() - start) * 1e3;
  EMBERKV_RETURN_IF_ERROR(TimeGets(Shuffled(0, count), get_all, &rates));
  return rates;
}

struct Round {
  DiskLimits disk;
  Rates local, blob;
};

Result<Round> RunRound(const std::string& base, const Pages& pages, size_t count, uint64_t index_entries) {
  const uint64_t probe_bytes = count * kReadBytes / kPieceBytes * kPieceBytes;
  Round round;
  EMBERKV_ASSIGN_OR_RETURN(const DiskLimits before, ProbeDisk(base, probe_bytes));
  EMBERKV_ASSIGN_OR_RETURN(round.local, BenchLocal(base + "/local", pages, count, index_entries));
  fs::remove_all(base + "/local");
  EMBERKV_ASSIGN_OR_RETURN(const DiskLimits after, ProbeDisk(base, probe_bytes));
  EMBERKV_ASSIGN_OR_RETURN(round.blob, BenchBlobDb(base + "/blob", pages, count));
  fs::remove_all(base + "/blob");
  round.disk = {(before.overwrite + after.overwrite) / 2, (before.random_read + after.random_read) / 2};
  return round;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

using Figure = std::function<double(const Round&)>;

// One line over all rounds; `limit` and `rival` may be empty.
Measurement Summary(std::span<const Round> rounds, std::string name, std::string unit, const Figure& achieved,
                    const Figure& limit, const Figure& rival) {
  const auto all = [&](const auto& figure) {
    std::vector<double> values;
    for (const Round& round : rounds) values.push_back(figure(round));
    return values;
  };
  Measurement line;
  line.name = std::move(name);
  line.unit = std::move(unit);
  line.achieved = Median(all(achieved));
  if (limit) {
    line.limit = Median(all(limit));
    const auto ratios = all([&](const Round& round) { return achieved(round) / limit(round); });
    line.ratio = Median(ratios);
    line.ratio_least = *std::ranges::min_element(ratios);
    line.ratio_most = *std::ranges::max_element(ratios);
  }
  if (rival) {
    line.rival_name = "RocksDB BlobDB";
    line.rival = Median(all(rival));
    line.rival_ratio = Median(all([&](const Round& round) { return achieved(round) / rival(round); }));
  }
  return line;
}

std::vector<Measurement> Summaries(std::span<const Round> rounds, uint64_t index_entries) {
  const Figure overwrite = [](const Round& round) { return round.disk.overwrite; };
  std::vector<Measurement> lines;
  const auto add = [&](Measurement line, const char* limit_name, std::optional<double> goal) {
    line.limit_name = limit_name;
    line.goal = goal;
    lines.push_back(std::move(line));
  };
  add(Summary(rounds, fmt::format("put, {} pages at once", kLargeBatch), "GB/s",
              [](const Round& r) { return r.local.put; }, overwrite, [](const Round& r) { return r.blob.put; }),
      "disk overwrite", 0.7);
  add(Summary(rounds, fmt::format("put, {} pages at once", kSmallBatch), "GB/s",
              [](const Round& r) { return r.local.put_small; }, overwrite, {}),
      "disk overwrite", std::nullopt);
  add(Summary(rounds, "get, cold", "GB/s", [](const Round& r) { return r.local.cold; },
              [](const Round& r) { return r.disk.random_read; }, [](const Round& r) { return r.blob.cold; }),
      "disk random read", 0.75);
  add(Summary(rounds, "get, warm", "GB/s", [](const Round& r) { return r.local.warm; },
              [](const Round& r) { return r.blob.warm; }, {}),
      "RocksDB BlobDB", 5);
  add(Summary(rounds, "bytes written per byte put", "bytes",
              [](const Round& r) { return r.local.write_amplification; }, {},
              [](const Round& r) { return r.blob.write_amplification; }),
      "", std::nullopt);
  lines.back().note = "goal: at most 1.1";
  add(Summary(rounds, "open to first hit", "ms", [](const Round& r) { return r.local.open_ms; }, {},
              [](const Round& r) { return r.blob.open_ms; }),
      "", std::nullopt);
  lines.back().note = fmt::format("with {} index entries more", index_entries);
  return lines;
}

}  // namespace

Result<std::vector<Measurement>> BenchStore(const std::string& directory, double gigabytes,
                                            uint64_t index_entries, int rounds) {
  const auto count = static_cast<size_t>(gigabytes * 1e9 / kPageBytes);
  if (count == 0 || rounds < 1) return InvalidArgument("store benchmark: at least a page and a round");
  Pages pages;
  pages.Add(4 * count);
  std::vector<Round> done;
  for (int i = 0; i < rounds; ++i) {
    EMBERKV_ASSIGN_OR_RETURN(const Round round, RunRound(directory, pages, count, index_entries));
    done.push_back(round);
  }
  return Summaries(done, index_entries);
}

}  // namespace emberkv
