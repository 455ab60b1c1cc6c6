// Memory of benchmarks on large pages, where the system grants them, as the buffers of the limits are.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace emberkv {

struct FreeDelete {
  void operator()(void* p) const { std::free(p); }
};
template <class T>
using LargeArray = std::unique_ptr<T[], FreeDelete>;

// `count` zeros, touched.
template <class T>
LargeArray<T> MakeLargeArray(size_t count) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const size_t size = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
  LargeArray<T> array(static_cast<T*>(std::aligned_alloc(kHugePage, size)));
  (void)madvise(array.get(), size, MADV_HUGEPAGE);
  std::fill_n(array.get(), count, T{});
  return array;
}

}  // namespace emberkv
