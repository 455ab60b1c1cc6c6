// What `emberkv bench model` and `emberkv bench resume` print.
//
// Pure functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "bench/model_bench.h"
#include "bench/resume_bench.h"

namespace emberkv {

std::string ModelReportText(const ModelReport& report);
nlohmann::ordered_json ModelReportJson(const ModelReport& report);

std::string ReplayRatesText(std::span<const ReplayRate> rates);
nlohmann::ordered_json ReplayRatesJson(std::span<const ReplayRate> rates);

std::string FirstTokensText(std::span<const FirstToken> runs);
nlohmann::ordered_json FirstTokensJson(std::span<const FirstToken> runs);

}  // namespace emberkv
