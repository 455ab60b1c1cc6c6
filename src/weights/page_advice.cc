#include "weights/page_advice.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace emberkv {
namespace {

// Linux cuts a longer request to about the read-ahead of the device; this is the least it has by default.
constexpr size_t kReadAheadPiece = size_t{128} << 10;

}  // namespace

void AdvisePages(std::span<const uint8_t> bytes, int advice) {
  if (bytes.empty()) return;
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t aligned = begin / page * page;
  madvise(reinterpret_cast<void*>(aligned), begin + bytes.size() - aligned, advice);
}

void ReadPagesAhead(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t piece = std::min(bytes.size(), kReadAheadPiece);
    AdvisePages(bytes.first(piece), MADV_WILLNEED);
    bytes = bytes.subspan(piece);
  }
}

}  // namespace emberkv
