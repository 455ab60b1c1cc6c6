#include "model/row_math.h"

#include "base/isa.h"

namespace emberkv {

const RowMath& ActiveRowMath() { return EMBERKV_FOR_ACTIVE_ISA(kRowMath); }

}  // namespace emberkv
