#include "model/row_math.h"

#include "base/isa.h"

namespace emberkv {

const RowMath& ActiveRowMath() {
#if defined(__x86_64__)
  switch (ActiveIsa()) {
    case Isa::kAvx512: return avx512::kRowMath;
    case Isa::kAvx2: return avx2::kRowMath;
    case Isa::kPortable: break;
  }
#endif
  return portable::kRowMath;
}

}  // namespace emberkv
