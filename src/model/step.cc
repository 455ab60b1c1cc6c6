#include "model/step.h"

namespace emberkv {
namespace {

template <class T>
size_t Bytes(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

size_t Bytes(const std::vector<std::vector<int32_t>>& lists) {
  size_t bytes = lists.capacity() * sizeof(lists[0]);
  for (const std::vector<int32_t>& list : lists) bytes += list.capacity() * sizeof(int32_t);
  return bytes;
}

}  // namespace

size_t Step::bytes() const {
  size_t bytes = Bytes(spans) + Bytes(rows) + Bytes(stream) + Bytes(pre) + Bytes(logits) +
                 Bytes(selections.selected) + Bytes(selections.candidates);
  const Scratch& s = scratch;
  for (const std::vector<float>* v :
       {&s.x, &s.y, &s.xq, &s.mixes, &s.post, &s.comb, &s.next_pre, &s.plain_angles,
        &s.compressed_angles, &s.qr, &s.q, &s.o, &s.z, &s.kv, &s.iq, &s.index_weights, &s.k, &s.g,
        &s.latent, &s.key, &s.router, &s.expert_in, &s.gate, &s.up, &s.hidden, &s.expert_out,
        &s.engram_rows, &s.engram_kv}) {
    bytes += Bytes(*v);
  }
  bytes += Bytes(s.index_visible) + Bytes(s.window_rows) + Bytes(s.engram_ids);
  for (const IndexScanner& scanner : s.scanners) bytes += scanner.bytes();
  for (const SparseAttention& attention : s.attentions) bytes += attention.bytes();
  return bytes;
}

}  // namespace emberkv
