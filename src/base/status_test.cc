#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>

namespace emberkv {
namespace {

Result<std::unique_ptr<int>> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("x is odd");
  return std::make_unique<int>(x / 2);
}

Status Quarter(int x, int* out) {
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<int> half, Half(x));
  EMBERKV_ASSIGN_OR_RETURN(std::unique_ptr<int> quarter, Half(*half));
  *out = *quarter;
  return Status::Ok();
}

TEST(Status, NamesCodeAndMessage) {
  EXPECT_EQ(Status::Ok().ToString(), "ok");
  EXPECT_EQ(DataLoss("row 3").ToString(), "data loss: row 3");
  EXPECT_EQ(DataLoss("row 3").WithContext("page 7").message(), "page 7: row 3");
  EXPECT_TRUE(Status::Ok().WithContext("page 7").ok());
}

TEST(Status, PassesMoveOnlyValuesAndFailuresUp) {
  int out = 0;
  EXPECT_TRUE(Quarter(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(Quarter(6, &out).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Quarter(5, &out).message(), "x is odd");
}

}  // namespace
}  // namespace emberkv
