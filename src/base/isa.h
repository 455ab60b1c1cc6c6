// Which instruction set the kernels run on: chosen once from what the CPU has.
//
// Kernel sources are compiled once per instruction set into a namespace of that name; each room keeps
// one table of function pointers per set and asks ActiveIsa() which one to use. All sets give the same
// bits (docs/architecture.md, determinism), which tests check by overriding the choice.
// Any thread may call ActiveIsa(); OverrideIsa is for tests, before other threads use kernels.
#pragma once

#include <optional>
#include <vector>

namespace emberkv {

// kAvx512Dot is AVX-512 with byte and bf16 dot products (VNNI, BF16) and byte permutations (VBMI).
enum class Isa { kPortable, kAvx2, kAvx512, kAvx512Dot };

const char* IsaName(Isa isa);

// The sets this CPU and operating system support, slowest first. Never empty.
std::vector<Isa> SupportedIsas();

// The fastest supported set, or the override.
Isa ActiveIsa();

// The entry of a kernel table for the active set. `name` is defined in one namespace per set, which the
// build fills (cmake/rooms.cmake); call it from namespace emberkv. A table of KERNELS has no entry of its
// own for kAvx512Dot, which then runs what kAvx512 runs; a table of DOT_KERNELS has.
#if defined(__x86_64__)
#define EMBERKV_FOR_ACTIVE_ISA(name)                                \
  (::emberkv::ActiveIsa() >= ::emberkv::Isa::kAvx512 ? avx512::name \
   : ::emberkv::ActiveIsa() == ::emberkv::Isa::kAvx2 ? avx2::name   \
                                                     : portable::name)
#define EMBERKV_FOR_ACTIVE_DOT_ISA(name) \
  (::emberkv::ActiveIsa() == ::emberkv::Isa::kAvx512Dot ? avx512dot::name : EMBERKV_FOR_ACTIVE_ISA(name))
#else
#define EMBERKV_FOR_ACTIVE_ISA(name) (portable::name)
#define EMBERKV_FOR_ACTIVE_DOT_ISA(name) (portable::name)
#endif

// nullopt restores the automatic choice. A set that is not supported is refused (returns false).
bool OverrideIsa(std::optional<Isa> isa);

// Overrides for the life of the object.
class ScopedIsa {
 public:
  explicit ScopedIsa(Isa isa) { OverrideIsa(isa); }
  ~ScopedIsa() { OverrideIsa(std::nullopt); }
  ScopedIsa(const ScopedIsa&) = delete;
  ScopedIsa& operator=(const ScopedIsa&) = delete;
};

}  // namespace emberkv
