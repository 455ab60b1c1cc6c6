// The local store against the disk it lies on and against RocksDB alone.
//
//   store_bench DIRECTORY [GIGABYTES [INDEX_ENTRIES]]
//
// INDEX_ENTRIES pages more, without bytes of their own, are in the index when the store is opened: 10 GB and
// 10^7 entries show how opening grows.
//
// One run probes what the disk gives (O_DIRECT overwriting in 1-MiB pieces, random reads of a page), then
// puts and gets pages of 113,920 incompressible bytes through the local store and through RocksDB BlobDB.
// Ratios within the run are what counts; absolute rates belong to the machine and the moment.
#include <fcntl.h>
#include <fmt/format.h>
#include <rocksdb/db.h>
#include <rocksdb/options.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <condition_variable>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "base/fake_clock.h"
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

DiskLimits ProbeDisk(const std::string& directory, uint64_t bytes) {
  const std::string path = directory + "/probe";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_DIRECT, 0644);
  const std::unique_ptr<SegmentIo> io = MakeSegmentIo();
  std::vector<uint64_t> pieces;
  for (uint64_t offset = 0; offset + kPieceBytes <= bytes; offset += kPieceBytes) pieces.push_back(offset);
  if (fd < 0 || ::posix_fallocate(fd, 0, static_cast<off_t>(bytes)) != 0) {
    std::fprintf(stderr, "cannot write %s\n", path.c_str());
    std::exit(1);
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

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "store_bench: %s\n", what);
  std::exit(1);
}

double PutAll(LocalStore& store, const Pages& pages, size_t begin, size_t end, size_t batch_pages) {
  const double start = Now();
  for (size_t i = begin; i < end; i += batch_pages) {
    std::vector<PageRecord> batch;
    for (size_t j = i; j < std::min(end, i + batch_pages); ++j) batch.push_back(pages.Record(j));
    for (const PutOutcome outcome : store.Put(batch)) Require(outcome == PutOutcome::kStored, "a put failed");
  }
  return Now() - start;
}

double GetAll(LocalStore& store, const Pages& pages, const std::vector<size_t>& order) {
  std::vector<uint8_t> payloads(kGetBatch * kPageBytes);
  const double start = Now();
  for (size_t i = 0; i < order.size(); i += kGetBatch) {
    std::vector<GetRequest> batch;
    for (size_t j = i; j < std::min(order.size(), i + kGetBatch); ++j) {
      batch.push_back(pages.Request(order[j], std::span(payloads).subspan((j - i) * kPageBytes, kPageBytes)));
    }
    for (const GetOutcome outcome : store.Get(std::move(batch), std::chrono::minutes(1))->Wait()) {
      Require(outcome == GetOutcome::kHit, "a get missed");
    }
  }
  return Now() - start;
}

// Rows for pages of a segment that is not there: what a larger store's index holds besides.
void AddIndexEntries(const std::string& directory, uint64_t count) {
  auto index = StoreIndex::Open(directory + "/index").value();
  std::mt19937_64 random(11);
  for (uint64_t i = 0; i < count;) {
    IndexBatch batch;
    for (uint64_t end = std::min<uint64_t>(count, i + 10'000); i < end; ++i) {
      BlockHash key;
      for (size_t at = 0; at < key.bytes.size(); at += 8) {
        const uint64_t bits = random();
        std::memcpy(key.bytes.data() + at, &bits, 8);
      }
      batch.PutPage(key, {.place = {.segment = UINT32_MAX, .slot = static_cast<uint32_t>(i), .generation = 1},
                          .num_tokens = kTokens,
                          .payload_bytes = kPageBytes,
                          .deadline_us = 1,
                          .tenant = {}});
    }
    Require(index->Commit(batch).ok(), "the index takes no more entries");
  }
}

Rates BenchLocal(const std::string& directory, Pages& pages, size_t count, uint64_t index_entries,
                 std::string* io) {
  FakeClock clock;
  const uint64_t bytes = count * kReadBytes;
  LocalStoreOptions options{.directory = directory,
                            .budget_bytes = bytes + bytes / 4 + (uint64_t{1} << 30),
                            .segment_bytes = uint64_t{256} << 20};
  auto store = LocalStore::Open(options, &clock).value();
  *io = store->IoDescription();
  // The steady state is a store whose segments were written before.
  pages.Add(4 * count);
  const auto expire_all = [&] {
    clock.Advance(std::chrono::microseconds(std::chrono::hours(24 * 30)).count());
    store->Sweep();
  };
  PutAll(*store, pages, 3 * count, 4 * count, kLargeBatch);
  expire_all();
  PutAll(*store, pages, 0, count, kLargeBatch);
  expire_all();
  Rates rates;
  rates.put_small = GbPerS(count * kPageBytes, PutAll(*store, pages, 2 * count, 3 * count, kSmallBatch));
  expire_all();
  const uint64_t writes = DiskWrites();
  rates.put = GbPerS(count * kPageBytes, PutAll(*store, pages, count, 2 * count, kLargeBatch));
  rates.write_amplification =
      static_cast<double>(DiskWrites() - writes) / static_cast<double>(count * kPageBytes);
  store.reset();

  AddIndexEntries(directory, index_entries);
  DropFromMemory(directory);
  const double start = Now();
  store = LocalStore::Open(options, &clock).value();
  std::vector<uint8_t> payload(kPageBytes);
  Require(store->Get({pages.Request(count, payload)}, std::chrono::minutes(1))->Wait()[0] == GetOutcome::kHit,
          "the first get missed");
  rates.open_ms = (Now() - start) * 1e3;

  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = count + i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  rates.cold = GbPerS(count * kPageBytes, GetAll(*store, pages, order));
  // What fits in memory beside the rest of the machine.
  order.resize(std::min<size_t>(count, (size_t{1} << 30) / kPageBytes));
  for (int i = 0; i < kWarmUps; ++i) GetAll(*store, pages, order);
  rates.warm = GbPerS(order.size() * kPageBytes, GetAll(*store, pages, order));
  return rates;
}

Rates BenchBlobDb(const std::string& directory, const Pages& pages, size_t count) {
  rocksdb::Options options;
  options.create_if_missing = true;
  options.compression = rocksdb::kNoCompression;
  options.write_buffer_size = 128 << 20;
  options.max_write_buffer_number = 3;
  options.enable_blob_files = true;
  options.min_blob_size = 4096;
  options.blob_file_size = 512 << 20;
  rocksdb::DB* raw = nullptr;
  Require(rocksdb::DB::Open(options, directory, &raw).ok(), "RocksDB does not open");
  std::unique_ptr<rocksdb::DB> db(raw);
  const auto key = [&](size_t i) {
    return rocksdb::Slice(reinterpret_cast<const char*>(pages.key(i).bytes.data()), 32);
  };
  Rates rates;
  const uint64_t writes = DiskWrites();
  double start = Now();
  for (size_t i = 0; i < count; ++i) {
    const auto payload = pages.Payload(i);
    rocksdb::WriteOptions write;
    write.sync = i % kLargeBatch == kLargeBatch - 1;  // as durable as the store's batches
    Require(db->Put(write, key(i), {reinterpret_cast<const char*>(payload.data()), payload.size()}).ok(), "put");
  }
  Require(db->Flush({}).ok(), "flush");
  rates.put = GbPerS(count * kPageBytes, Now() - start);
  rates.write_amplification =
      static_cast<double>(DiskWrites() - writes) / static_cast<double>(count * kPageBytes);
  db.reset();
  DropFromMemory(directory);
  start = Now();
  Require(rocksdb::DB::Open(options, directory, &raw).ok(), "RocksDB does not open again");
  db.reset(raw);
  std::vector<uint8_t> copy(kPageBytes);
  const auto get_all = [&](const std::vector<size_t>& order) {
    const double begin = Now();
    for (const size_t i : order) {
      rocksdb::PinnableSlice value;
      Require(db->Get({}, db->DefaultColumnFamily(), key(i), &value).ok(), "get");
      std::memcpy(copy.data(), value.data(), value.size());
    }
    return Now() - begin;
  };
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), std::mt19937_64(3));
  get_all({order[0]});
  rates.open_ms = (Now() - start) * 1e3;
  rates.cold = GbPerS(count * kPageBytes, get_all(order));
  order.resize(std::min<size_t>(count, (size_t{1} << 30) / kPageBytes));
  for (int i = 0; i < kWarmUps; ++i) get_all(order);
  rates.warm = GbPerS(order.size() * kPageBytes, get_all(order));
  return rates;
}

void Print(const std::string& directory, double gigabytes, uint64_t index_entries) {
  const auto count = static_cast<size_t>(gigabytes * 1e9 / kPageBytes);
  const std::string base = directory + "/store_bench";
  fs::remove_all(base);
  fs::create_directory(base);
  Pages pages;
  std::string io;
  const DiskLimits before = ProbeDisk(base, count * kReadBytes / kPieceBytes * kPieceBytes);
  const Rates local = BenchLocal(base + "/local", pages, count, index_entries, &io);
  fs::remove_all(base + "/local");
  const DiskLimits after = ProbeDisk(base, count * kReadBytes / kPieceBytes * kPieceBytes);
  const Rates blob = BenchBlobDb(base + "/blob", pages, count);
  fs::remove_all(base);

  const double overwrite = (before.overwrite + after.overwrite) / 2;
  const double random_read = (before.random_read + after.random_read) / 2;
  fmt::print("{} pages of {} bytes, {}\n", count, kPageBytes, io);
  fmt::print("disk: overwrite {:.2f} / {:.2f} GB/s, random read {:.2f} / {:.2f} GB/s (before / after)\n",
             before.overwrite, after.overwrite, before.random_read, after.random_read);
  fmt::print("{:<22}{:>8}{:>10}{:>10}{:>12}{:>14}\n", "", "GB/s", "of disk", "target", "BlobDB GB/s", "times BlobDB");
  fmt::print("{:<22}{:>8.2f}{:>10.2f}{:>10}{:>12.2f}{:>14.1f}\n", fmt::format("put, {} at once", kLargeBatch),
             local.put, local.put / overwrite, ">= 0.70", blob.put, local.put / blob.put);
  fmt::print("{:<22}{:>8.2f}{:>10.2f}\n", fmt::format("put, {} at once", kSmallBatch), local.put_small,
             local.put_small / overwrite);
  fmt::print("{:<22}{:>8.2f}{:>10.2f}{:>10}{:>12.2f}{:>14.1f}\n", "get, cold", local.cold,
             local.cold / random_read, ">= 0.75", blob.cold, local.cold / blob.cold);
  fmt::print("{:<22}{:>8.2f}{:>10}{:>10}{:>12.2f}{:>14.1f}\n", "get, warm", local.warm, "", ">= 5 x", blob.warm,
             local.warm / blob.warm);
  fmt::print("write amplification {:.3f} (target <= 1.1), BlobDB {:.2f}; open to first hit {:.1f} ms, BlobDB {:.1f} ms\n",
             local.write_amplification, blob.write_amplification, local.open_ms, blob.open_ms);
}

}  // namespace
}  // namespace emberkv

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: store_bench DIRECTORY [GIGABYTES [INDEX_ENTRIES]]\n");
    return 2;
  }
  emberkv::Print(argv[1], argc > 2 ? std::atof(argv[2]) : 2.0, argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 0);
  return 0;
}
