// Plain twins of the attention kernels: one loop per line of numerics 9.1 and 10, for tests.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace emberkv::reference {

// Index score of one query and one key (numerics 9.1), the dot summed by groups of 32 channels. q
// [heads][dim], k [dim], w [heads].
float IndexScore(const float* q, const float* k, const float* w, int heads, int dim);

// The k best visible positions, ascending; equal scores: lowest position (numerics 9.3, 9.4).
std::vector<int32_t> TopK(std::span<const float> scores, int k);

// The kept blocks, ascending (numerics 9.2).
std::vector<int32_t> CandidateBlocks(std::span<const float> scores, int topk_blocks, int block_size);

// Attention as the kernels compute it, to the bit: in tiles of 64 ids, in the order of sums of
// sparse_attention_kernels.h. Arguments as below; out [heads][dim], bf16 values.
std::vector<float> TiledAttention(const float* q, const float* rows, const float* sink,
                                  std::span<const int32_t> ids, int heads, int dim);

// Exact softmax attention with sink in double: rows [n][dim]; ids index rows, -1 is empty.
std::vector<float> Attention(const float* q, const float* rows, const float* sink,
                             std::span<const int32_t> ids, int heads, int dim);

}  // namespace emberkv::reference
