// y = x W^T for packed weights: batch-invariant products.
//
// Every output element is summed in one order whatever the number of rows, the threads or the
// instruction set: K ascending, cut into runs of 32 columns (FP8, FP4: what shares a scale) or 128
// (bf16, fp32). The products of a run are added one by one into one fp32 sum, which is multiplied
// by the scale, if there is one, and added to the sum of the runs before. FP8, FP4 and bf16 weights
// take inputs that are bf16 values (products are then exact in fp32); fp32 weights take any finite
// input. The caller quantizes inputs where the model does (formats: RoundRows). Nothing here owns
// memory but a scratch of each calling thread, at most 256 bytes a column.
#pragma once

#include <cstddef>

#include "base/thread_pool.h"
#include "linear/packed_matrix.h"

namespace emberkv {

enum class Rounding { kNone, kBf16 };  // of the output

// x [num_rows][w.cols()], rows x_stride floats apart; y [num_rows][w.rows()], y_stride apart. x and
// y must not overlap. Runs on `pool` when the work is worth it.
void Multiply(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
              size_t y_stride, Rounding rounding, ThreadPool& pool);

// The same on the calling thread only: for use inside a parallel loop.
void MultiplyHere(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows, float* y,
                  size_t y_stride, Rounding rounding);

// The plain twin: the same order of summation, one element at a time.
void MultiplyReference(const PackedMatrix& w, const float* x, size_t x_stride, int num_rows,
                       float* y, size_t y_stride, Rounding rounding);

}  // namespace emberkv
