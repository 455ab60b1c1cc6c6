#include "base/isa.h"

#include <algorithm>
#include <atomic>

namespace emberkv {
namespace {

std::atomic<int> override_isa{-1};

bool CpuHas(Isa isa) {
  if (isa == Isa::kPortable) return true;
#if defined(__x86_64__)
  // Clang 14 does not know the level names, so the features of x86-64-v3 and -v4 are listed.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  if (isa == Isa::kAvx2) return v3;
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512cd");
  if (isa == Isa::kAvx512) return v4;
  return v4 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
#else
  return false;
#endif
}

}  // namespace

const char* IsaName(Isa isa) {
  switch (isa) {
    case Isa::kPortable: return "portable";
    case Isa::kAvx2: return "avx2";
    case Isa::kAvx512: return "avx512";
    case Isa::kAvx512Dot: return "avx512dot";
  }
  return "unknown";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Dot}) {
    if (CpuHas(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa ActiveIsa() {
  static const Isa best = SupportedIsas().back();
  const int forced = override_isa.load(std::memory_order_relaxed);
  return forced < 0 ? best : static_cast<Isa>(forced);
}

bool OverrideIsa(std::optional<Isa> isa) {
  if (isa && !CpuHas(*isa)) return false;
  override_isa.store(isa ? static_cast<int>(*isa) : -1, std::memory_order_relaxed);
  return true;
}

}  // namespace emberkv
