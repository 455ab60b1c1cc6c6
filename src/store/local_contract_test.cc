#include "store/local_harness.h"
#include "store/store_contract_test.h"
#include "store/store_model_test.h"

namespace emberkv {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(Local, StoreContract, LocalHarness);
INSTANTIATE_TYPED_TEST_SUITE_P(Local, DurableStoreContract, LocalHarness);

TEST(LocalStore, AgreesWithTheModel) { RunStoreModel<LocalHarness>(kModelTestTime); }

}  // namespace
}  // namespace emberkv
