// Any bytes as config.json: refused or turned into a layout, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "layout/cache_layout.h"
#include "layout/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace emberkv;
  Result<ModelConfig> config =
      ParseModelConfig(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) return 0;
  Result<CacheLayout> layout = MakeCacheLayout(*config);
  if (!layout.ok()) return 0;
  // What every user of a layout relies on.
  if (layout->page_bytes == 0 || layout->num_layers() != config->num_hidden_layers) std::abort();
  for (const LayerPlan& layer : layout->layers) {
    const bool has_source = layer.kv_source >= 0;
    if (has_source != (layer.ratio > 0)) std::abort();
    if (has_source && layer.kv_source >= static_cast<int>(layout->sources.size())) std::abort();
  }
  return 0;
}
