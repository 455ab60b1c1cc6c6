#include "bench/linear_rivals.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#ifdef EMBERKV_HAVE_ONEDNN
#include <omp.h>

#include <oneapi/dnnl/dnnl.hpp>
#endif

namespace emberkv {

namespace {

// OpenBLAS starts its threads when it is loaded, so nothing but a benchmark may load it: it is looked up while
// the program runs. Never unloaded. The values of its enumerations are those of cblas.h.
class OpenBlas {
 public:
  static constexpr int kRowMajor = 101, kNoTrans = 111, kTrans = 112;
  using Sgemm = void (*)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc);
  using Sgemv = void (*)(int order, int trans, int m, int n, float alpha, const float* a, int lda, const float* x,
                         int incx, float beta, float* y, int incy);

  // nullptr where it is not installed.
  static const OpenBlas* Get() {
    static const OpenBlas blas;
    return blas.sgemm && blas.sgemv && blas.set_num_threads ? &blas : nullptr;
  }

  Sgemm sgemm = nullptr;
  Sgemv sgemv = nullptr;
  void (*set_num_threads)(int) = nullptr;

 private:
  OpenBlas() {
    void* const library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    sgemm = reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm"));
    sgemv = reinterpret_cast<Sgemv>(dlsym(library, "cblas_sgemv"));
    set_num_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
  }
};

}  // namespace

std::optional<Contender> OpenBlasRival(const RivalProduct& product, int copies, int threads) {
  const OpenBlas* const blas = OpenBlas::Get();
  if (blas == nullptr) return std::nullopt;
  struct Operands {
    std::vector<std::vector<float>> weights;
    std::vector<float> x, y;
  };
  const int rows = product.rows, cols = product.cols, m = product.m;
  const auto size = [](int a, int b) { return static_cast<size_t>(a) * static_cast<size_t>(b); };
  const auto operands = std::make_shared<Operands>();
  operands->weights.assign(static_cast<size_t>(copies), std::vector<float>(size(rows, cols), 0.5f));
  operands->x.assign(size(m, cols), 0.25f);
  operands->y.resize(size(m, rows));
  return Contender{
      m == 1 ? "OpenBLAS sgemv" : "OpenBLAS sgemm", product.amount * copies, [=] {
        blas->set_num_threads(threads);
        for (const std::vector<float>& w : operands->weights) {
          if (m == 1) {
            blas->sgemv(OpenBlas::kRowMajor, OpenBlas::kNoTrans, rows, cols, 1.0f, w.data(), cols, operands->x.data(), 1,
                        0.0f, operands->y.data(), 1);
          } else {
            blas->sgemm(OpenBlas::kRowMajor, OpenBlas::kNoTrans, OpenBlas::kTrans, m, rows, cols, 1.0f,
                        operands->x.data(), cols, w.data(), cols, 0.0f, operands->y.data(), rows);
          }
        }
      }};
}

#ifdef EMBERKV_HAVE_ONEDNN
std::optional<Contender> OneDnnRival(const RivalProduct& product, int threads) {
  using dnnl::memory;
  const auto [rows, cols, m, amount] = product;
  omp_set_num_threads(threads);  // before the primitive is made: it plans for them
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const memory::desc any_weights({cols, rows}, memory::data_type::bf16, memory::format_tag::any);
  const memory::desc x_desc({m, cols}, memory::data_type::bf16, memory::format_tag::ab);
  const memory::desc y_desc({m, rows}, memory::data_type::f32, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc plan(dnnl::matmul::desc(x_desc, any_weights, y_desc), engine);
  const auto matmul = std::make_shared<dnnl::matmul>(plan);
  const auto stream = std::make_shared<dnnl::stream>(engine);
  const memory x(x_desc, engine), w(plan.weights_desc(), engine), y(y_desc, engine);
  for (const memory& operand : {x, w}) {
    std::fill_n(static_cast<uint16_t*>(operand.get_data_handle()),
                operand.get_desc().get_size() / 2, uint16_t{0x3f00});
  }
  return Contender{
      "oneDNN bf16 matmul", amount, [=] {
        omp_set_num_threads(threads);
        matmul->execute(*stream, {{DNNL_ARG_SRC, x}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y}});
        stream->wait();
      }};
}
#else
std::optional<Contender> OneDnnRival(const RivalProduct&, int) { return std::nullopt; }
#endif

}  // namespace emberkv
