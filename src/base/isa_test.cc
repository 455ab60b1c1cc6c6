#include "base/isa.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

TEST(Isa, ForcedSetReallyRuns) {
  for (Isa isa : SupportedIsas()) {
    ScopedIsa forced(isa);
    EXPECT_EQ(ActiveIsa(), isa) << IsaName(isa);
  }
  EXPECT_EQ(ActiveIsa(), SupportedIsas().back());
}

TEST(Isa, PortableIsAlwaysThere) { EXPECT_EQ(SupportedIsas().front(), Isa::kPortable); }

}  // namespace
}  // namespace emberkv
