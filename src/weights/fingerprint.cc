#include "weights/fingerprint.h"

#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <span>
#include <vector>

#include "weights/page_advice.h"

namespace emberkv {
namespace {

using Bytes = std::span<const uint8_t>;

// Changing what follows a name, or the sample, means changing the number in it.
constexpr std::string_view kModelEncoding = "emberkv.model.1";
constexpr std::string_view kFullEncoding = "emberkv.full_model.1";
constexpr std::string_view kShardEncoding = "emberkv.shard_sample.1";

// A tensor's sample: kMinPieces pieces and one more for each kPieceSpacing of its bytes.
constexpr uint64_t kPieceBytes = 4096;
constexpr uint64_t kMinPieces = 4;
constexpr uint64_t kPieceSpacing = uint64_t{64} << 20;

constexpr size_t kFullPieceBytes = size_t{16} << 20;

// All of the file: its tensors are views into one mapping. A shard has at least one tensor.
Bytes FileBytes(const SafetensorsFile& shard) {
  if (shard.tensors().empty()) return {};
  const TensorView& first = shard.tensors().front();
  return {first.bytes.data() - first.file_offset, shard.size_bytes()};
}

Bytes HeaderBytes(const SafetensorsFile& shard) {
  if (shard.tensors().empty()) return {};
  return FileBytes(shard).first(shard.tensors().front().file_offset);
}

void AddPieces(Bytes tensor, std::vector<Bytes>* pieces) {
  if (tensor.size() <= kMinPieces * kPieceBytes) {
    if (!tensor.empty()) pieces->push_back(tensor);
    return;
  }
  const uint64_t intervals = kMinPieces + tensor.size() / kPieceSpacing - 1;
  const uint64_t last = tensor.size() - kPieceBytes;
  for (uint64_t i = 0; i <= intervals; ++i) {
    // last * i / intervals without overflow.
    const uint64_t at = last / intervals * i + last % intervals * i / intervals;
    pieces->push_back(tensor.subspan(at, kPieceBytes));
  }
}

Digest ShardSample(const SafetensorsFile& shard) {
  std::vector<Bytes> pieces;
  for (const TensorView& tensor : shard.tensors()) AddPieces(tensor.bytes, &pieces);
  // Read together, and exactly these: faults one after the other would wait for the disk each time,
  // and read around themselves.
  for (const Bytes piece : pieces) AdvisePages(piece, MADV_WILLNEED);
  Sha256Stream stream;
  stream.AddField(kShardEncoding);
  stream.AddField(shard.size_bytes());
  stream.AddField(HeaderBytes(shard));
  for (const Bytes piece : pieces) stream.Add(piece);
  AdvisePages(FileBytes(shard), MADV_DONTNEED);  // the sample need not stay resident
  return stream.Finish();
}

Digest Combine(std::string_view encoding, std::string_view config_text,
               const std::vector<Digest>& shards) {
  Sha256Stream stream;
  stream.AddField(encoding);
  stream.AddField(config_text);
  for (const Digest& shard : shards) stream.AddField(shard);
  return stream.Finish();
}

}  // namespace

Digest ModelFingerprint(const Checkpoint& checkpoint, std::string_view config_text,
                        ThreadPool& pool) {
  const std::vector<SafetensorsFile>& files = checkpoint.files();
  std::vector<Digest> shards(files.size());
  pool.ParallelFor(static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      shards[i] = ShardSample(files[i]);
    }
  });
  return Combine(kModelEncoding, config_text, shards);
}

Digest FullFingerprint(const Checkpoint& checkpoint, std::string_view config_text, ThreadPool& pool,
                       const std::function<void(uint64_t done, uint64_t total)>& progress) {
  const std::vector<SafetensorsFile>& files = checkpoint.files();
  uint64_t total = 0;
  for (const SafetensorsFile& file : files) total += file.size_bytes();

  std::mutex mutex;
  uint64_t done = 0;  // guarded by mutex
  const auto hash_file = [&](const SafetensorsFile& file) {
    Sha256Stream stream;  // of the file's bytes alone: what sha256sum says of it
    Bytes rest = FileBytes(file);
    while (!rest.empty()) {
      const Bytes piece = rest.first(std::min(rest.size(), kFullPieceBytes));
      rest = rest.subspan(piece.size());
      AdvisePages(rest.first(std::min(rest.size(), kFullPieceBytes)), MADV_WILLNEED);
      stream.Add(piece);
      AdvisePages(piece, MADV_DONTNEED);
      const std::lock_guard lock(mutex);
      done += piece.size();
      if (progress) progress(done, total);
    }
    return stream.Finish();
  };
  std::vector<Digest> shards(files.size());
  pool.ParallelFor(static_cast<int64_t>(files.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      shards[i] = hash_file(files[i]);
    }
  });
  return Combine(kFullEncoding, config_text, shards);
}

}  // namespace emberkv
