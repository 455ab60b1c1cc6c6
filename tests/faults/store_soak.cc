// The stores against a simple model, for as long as is asked for: `store_soak SECONDS`, 2 without it.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "store/local_harness.h"
#include "store/memory_harness.h"
#include "store/store_model_test.h"

namespace emberkv {
namespace {

std::chrono::milliseconds soak_time = kModelTestTime;

TEST(StoreSoak, TheLocalStoreAgreesWithTheModel) { RunStoreModel<LocalHarness>(soak_time); }

TEST(StoreSoak, TheMemoryStoreAgreesWithTheModel) { RunStoreModel<MemoryHarness>(soak_time / 10); }

}  // namespace
}  // namespace emberkv

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) emberkv::soak_time = std::chrono::seconds(std::strtol(argv[1], nullptr, 10));
  return RUN_ALL_TESTS();
}
