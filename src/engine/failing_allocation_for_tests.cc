#include "engine/failing_allocation_for_tests.h"

#include <cstdlib>
#include <new>

namespace emberkv {

thread_local int g_failing_allocation = 0;

}  // namespace emberkv

void* operator new(size_t bytes) {
  int& failing = emberkv::g_failing_allocation;
  if (failing > 0 && --failing == 0) throw std::bad_alloc();
  void* const memory = std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
