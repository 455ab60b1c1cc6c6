#include "golden_data.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "formats/bf16.h"

namespace emberkv::golden {
namespace {

std::string DataPath(const std::string& relative) {
  return std::string(EMBERKV_TEST_DATA) + "/golden/" + relative;
}

std::vector<int32_t> ReadIds(const std::string& path) {
  const Result<std::string> text = ReadTextFile(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << text.status().ToString();
  return nlohmann::json::parse(*text).get<std::vector<int32_t>>();
}

template <class T>
std::vector<int64_t> Widen(const TensorView& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return {values.begin(), values.end()};
}

}  // namespace

File::File(const std::string& relative_path) {
  Result<SafetensorsFile> file = SafetensorsFile::Open(DataPath(relative_path));
  if (!file.ok()) {
    ADD_FAILURE() << file.status().ToString();
    std::abort();
  }
  file_ = std::make_unique<SafetensorsFile>(std::move(file).value());
}

const TensorView& File::Tensor(const std::string& name) const {
  const TensorView* tensor = file_->Find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << file_->path() << " has no tensor " << name;
    std::abort();
  }
  return *tensor;
}

std::vector<float> File::Floats(const std::string& name) const {
  const TensorView& t = Tensor(name);
  std::vector<float> out;
  if (t.dtype == DType::kF32) {
    out.resize(t.bytes.size() / 4);
    std::memcpy(out.data(), t.bytes.data(), t.bytes.size());
  } else if (t.dtype == DType::kF64) {
    for (size_t i = 0; i < t.bytes.size(); i += 8) {
      double v;
      std::memcpy(&v, t.bytes.data() + i, 8);
      out.push_back(static_cast<float>(v));
    }
  } else {
    EXPECT_EQ(t.dtype, DType::kBF16) << name;
    for (size_t i = 0; i < t.bytes.size(); i += 2) {
      uint16_t bits;
      std::memcpy(&bits, t.bytes.data() + i, 2);
      out.push_back(Bf16ToFloat(bits));
    }
  }
  return out;
}

std::vector<int64_t> File::Ints(const std::string& name) const {
  const TensorView& t = Tensor(name);
  switch (t.dtype) {
    case DType::kI64: return Widen<int64_t>(t);
    case DType::kI32: return Widen<int32_t>(t);
    case DType::kI16: return Widen<int16_t>(t);
    case DType::kU8:
    case DType::kBool: return Widen<uint8_t>(t);
    default: ADD_FAILURE() << name << " holds no integers"; return {};
  }
}

std::vector<uint8_t> File::Codes(const std::string& name) const {
  const TensorView& t = Tensor(name);
  return {t.bytes.begin(), t.bytes.end()};
}

std::string File::Metadata(const std::string& key) const { return file_->metadata().at(key); }

const TinyModel& Tiny(const std::string& name, bool select_all) {
  static std::map<std::pair<std::string, bool>, TinyModel> models;
  TinyModel& tiny = models[{name, select_all}];
  if (tiny.model) return tiny;
  const std::string dir = DataPath(name);
  const auto check = [](const Status& status) {
    if (status.ok()) return;
    ADD_FAILURE() << status.ToString();
    std::abort();
  };
  tiny.name = name;
  Result<ModelConfig> config = LoadModelConfig(dir);
  check(config.status());
  tiny.config = *config;
  if (select_all) tiny.config.index_topk = tiny.config.candidate_topk_blocks = 1024;
  Result<CacheLayout> layout = MakeCacheLayout(tiny.config);
  check(layout.status());
  tiny.layout = *layout;
  Result<Checkpoint> checkpoint = Checkpoint::Open(dir, tiny.config);
  check(checkpoint.status());
  Result<std::unique_ptr<Model>> model =
      Model::Load(std::make_shared<Checkpoint>(std::move(checkpoint).value()), tiny.config, tiny.layout,
                  ReadIds(dir + "/token_map.json"));
  check(model.status());
  tiny.model = std::move(model).value();
  tiny.tokens = ReadIds(dir + "/tokens.json");
  return tiny;
}

Sequence::Sequence(const TinyModel& tiny, std::vector<int32_t> tokens)
    : tiny_(tiny), tokens_(std::move(tokens)) {
  const CacheLayout& layout = tiny.layout;
  const size_t block = static_cast<size_t>(layout.block_size);
  pages_.resize(tokens_.size() / block + 1);
  for (std::vector<uint8_t>& page : pages_) {
    page.resize(layout.page_bytes);
    writable_.push_back(page.data());
  }
  windows_.resize(layout.window_bytes());
  tails_.resize(layout.tail_bytes / sizeof(float) + 1);
  state_.tokens = tokens_.data();
  state_.pages = writable_.data();
  state_.writable_pages = writable_.data();
  state_.windows = windows_.data();
  state_.tails = tails_.data();
}

std::vector<uint8_t> Sequence::GlobalRow(const KvSource& source, int64_t row) const {
  const uint8_t* at = pages_[static_cast<size_t>(row / source.rows_per_block)].data() + source.kv_offset +
                      static_cast<size_t>(row % source.rows_per_block) * tiny_.layout.kv_row_bytes;
  return {at, at + tiny_.layout.kv_row_bytes};
}

std::vector<uint8_t> Sequence::IndexKeyRow(const KvSource& source, int64_t row) const {
  const uint8_t* at = pages_[static_cast<size_t>(row / source.rows_per_block)].data() + source.key_offset +
                      static_cast<size_t>(row % source.rows_per_block) * tiny_.layout.key_row_bytes;
  return {at, at + tiny_.layout.key_row_bytes};
}

std::vector<uint8_t> Sequence::WindowRow(int layer, int64_t pos) const {
  const uint8_t* at = windows_.data() + static_cast<size_t>(layer) * tiny_.layout.window_bytes_per_layer +
                      static_cast<size_t>(pos % tiny_.config.sliding_window) * tiny_.layout.window_row_bytes;
  return {at, at + tiny_.layout.window_row_bytes};
}

std::vector<uint8_t> Sequence::AllPages() const {
  std::vector<uint8_t> all;
  for (const std::vector<uint8_t>& page : pages_) all.insert(all.end(), page.begin(), page.end());
  return all;
}

void Sequence::CopyPagesFrom(const Sequence& other, int64_t blocks) {
  for (size_t b = 0; b < static_cast<size_t>(blocks); ++b) {
    std::copy(other.pages_[b].begin(), other.pages_[b].end(), pages_[b].begin());
  }
}

std::vector<float> Run(const Model& model, Sequence* sequence, int64_t begin, int64_t end,
                       int64_t chunk, ThreadPool* pool) {
  Step step(pool);
  for (int64_t pos = begin; pos < end; pos += chunk) {
    const int64_t stop = std::min(end, pos + chunk);
    step.spans = {{sequence->state(), pos, stop, stop == end}};
    const Status status = model.Forward(&step);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  return step.logits;
}

Difference Compare(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  Difference d;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double diff = std::fabs(double{a[i]} - double{b[i]});
    d.max = std::max(d.max, std::isnan(diff) ? INFINITY : diff);
    d.rms += diff * diff;
  }
  d.rms = std::sqrt(d.rms / static_cast<double>(std::max<size_t>(1, a.size())));
  return d;
}

int Bf16Distance(float a, float b) {
  const auto order = [](float x) {
    const int bits = FloatToBf16(x);
    return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : bits;
  };
  return std::abs(order(a) - order(b));
}

double WorstRowError(const std::vector<float>& a, const std::vector<float>& b, size_t width) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t r = 0; r + width <= b.size(); r += width) {
    double error = 0, norm = 0;
    for (size_t c = r; c < r + width; ++c) {
      error += (double{a[c]} - b[c]) * (double{a[c]} - b[c]);
      norm += double{b[c]} * b[c];
    }
    worst = std::max(worst, std::sqrt(error) / std::sqrt(norm + 1e-30));
  }
  return worst;
}

}  // namespace emberkv::golden
