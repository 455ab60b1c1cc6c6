// Measurements as a table for people and as JSON for machines, and two JSON reports compared.
//
// Pure functions; any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "bench/machine_facts.h"
#include "bench/measurement.h"

namespace emberkv {

std::string MachineText(const MachineFacts& facts);
nlohmann::ordered_json MachineJson(const MachineFacts& facts);

// One line a measurement: achieved, limit, ratio with its spread, goal, rival. Notes come below.
std::string MeasurementsText(std::span<const Measurement> measurements);
nlohmann::ordered_json MeasurementsJson(std::span<const Measurement> measurements);

struct BenchComparison {
  std::string text;
  bool has_regression = false;
};

// Compares the ratios of two reports of `emberkv bench ... --json`, measurement by measurement (by name and
// threads). A ratio that fell by more than `tolerance` (0.1: a tenth) is a regression.
Result<BenchComparison> CompareReports(std::string_view before, std::string_view after, double tolerance);

}  // namespace emberkv
