#include "attention/index_select.h"

#include <algorithm>

namespace emberkv {
namespace {

constexpr int64_t kKeysWorthSplitting = 4096;
constexpr int64_t kKeysPerPart = 1024;  // at least, and a multiple of it
constexpr int64_t kPartsPerThread = 4;

const CandidateLimits* Pool(const IndexLimits& limits) {
  return limits.use == CandidateUse::kChoose ? &limits.candidates : nullptr;
}

int64_t Keys(const IndexGroup& group, const IndexLimits& limits) {
  if (limits.use == CandidateUse::kFilter) {
    return static_cast<int64_t>(group.candidates[0].size()) * limits.candidates.block_size;
  }
  return *std::max_element(group.queries.visible.begin(), group.queries.visible.end());
}

void SelectWhole(const IndexGroup& group, const IndexLimits& limits, IndexScanner* scanner) {
  scanner->Begin(group.queries, limits.topk, Pool(limits));
  if (limits.use != CandidateUse::kFilter) {
    scanner->ScanRange(group.keys, 0, Keys(group, limits));
    scanner->Finish(group.selected, group.candidates);
    return;
  }
  const int block_size = limits.candidates.block_size;
  for (int i = 0; i < group.queries.count(); ++i) {
    const std::vector<int32_t>& blocks = group.candidates[i];
    scanner->ScanBlocks(i, group.keys, blocks, block_size, 0, static_cast<int64_t>(blocks.size()));
    scanner->FinishBlocks(i, blocks, block_size, &group.selected[i]);
  }
}

// Calls scan(scanner, begin, end) for parts of [0, n), then finish(scanner) with one that knows
// them all. Threads take parts in ascending order, as scanners want them.
template <class Scan, class Finish>
void SelectInParts(const IndexGroup& group, const IndexLimits& limits, int64_t n, int64_t grain,
                   std::span<IndexScanner> scanners, ThreadPool* pool, const Scan& scan,
                   const Finish& finish) {
  std::vector<char> begun(scanners.size());
  pool->ParallelFor(n, grain, [&](int64_t begin, int64_t end, int thread) {
    IndexScanner& scanner = scanners[static_cast<size_t>(thread)];
    if (begun[static_cast<size_t>(thread)] == 0) {
      scanner.Begin(group.queries, limits.topk, Pool(limits));
      begun[static_cast<size_t>(thread)] = 1;
    }
    scan(&scanner, begin, end);
  });
  IndexScanner* all = nullptr;
  for (size_t t = 0; t < scanners.size(); ++t) {
    if (begun[t] == 0) continue;
    if (all != nullptr) {
      all->Merge(&scanners[t]);
    } else {
      all = &scanners[t];
    }
  }
  finish(all);
}

int64_t Grain(int64_t keys, const ThreadPool& pool) {
  const int64_t parts = kPartsPerThread * pool.num_threads();
  return ((keys + parts - 1) / parts + kKeysPerPart - 1) / kKeysPerPart * kKeysPerPart;
}

void SelectSplit(const IndexGroup& group, const IndexLimits& limits,
                 std::span<IndexScanner> scanners, ThreadPool* pool) {
  const int block_size = limits.candidates.block_size;
  if (limits.use != CandidateUse::kFilter) {
    const int64_t keys = Keys(group, limits);
    int64_t grain = Grain(keys, *pool);
    if (limits.use == CandidateUse::kChoose)
      grain = (grain + block_size - 1) / block_size * block_size;
    SelectInParts(
        group, limits, keys, grain, scanners, pool,
        [&](IndexScanner* scanner, int64_t begin, int64_t end) {
          scanner->ScanRange(group.keys, begin, end);
        },
        [&](IndexScanner* scanner) { scanner->Finish(group.selected, group.candidates); });
    return;
  }
  for (int i = 0; i < group.queries.count(); ++i) {
    const std::vector<int32_t>& blocks = group.candidates[i];
    const int64_t count = static_cast<int64_t>(blocks.size());
    SelectInParts(
        group, limits, count, std::max<int64_t>(1, Grain(count * block_size, *pool) / block_size),
        scanners, pool,
        [&](IndexScanner* scanner, int64_t begin, int64_t end) {
          scanner->ScanBlocks(i, group.keys, blocks, block_size, begin, end);
        },
        [&](IndexScanner* scanner) {
          scanner->FinishBlocks(i, blocks, block_size, &group.selected[i]);
        });
  }
}

}  // namespace

void SelectRows(std::span<const IndexGroup> groups, const IndexLimits& limits,
                std::span<IndexScanner> scanners, ThreadPool* pool) {
  const int64_t threads = pool->num_threads();
  const bool few = threads > 1 && static_cast<int64_t>(groups.size()) < 2 * threads;
  const auto split = [&](const IndexGroup& group) {
    return few && Keys(group, limits) >= kKeysWorthSplitting;
  };
  pool->ParallelFor(static_cast<int64_t>(groups.size()), 1,
                    [&](int64_t begin, int64_t end, int thread) {
                      for (int64_t g = begin; g < end; ++g) {
                        const IndexGroup& group = groups[static_cast<size_t>(g)];
                        if (!split(group))
                          SelectWhole(group, limits, &scanners[static_cast<size_t>(thread)]);
                      }
                    });
  for (const IndexGroup& group : groups) {
    if (split(group)) SelectSplit(group, limits, scanners, pool);
  }
}

}  // namespace emberkv
