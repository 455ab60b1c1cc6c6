#include "bench/measurement.h"

#include <time.h>

#include <algorithm>
#include <chrono>

namespace emberkv {
namespace {

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Of an even number of values, the mean of the middle two.
double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double Rate(const Contender& contender, bool uses_thread_time) {
  const auto seconds = uses_thread_time ? ThreadSeconds : WallSeconds;
  const double start = seconds();
  contender.run();
  return contender.amount / std::max(seconds() - start, 1e-9);
}

std::vector<double> Ratios(const std::vector<double>& rates, const std::vector<double>& others) {
  std::vector<double> ratios;
  for (size_t i = 0; i < rates.size(); ++i) ratios.push_back(rates[i] / others[i]);
  return ratios;
}

}  // namespace

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Measurement Measure(const MeasurementSpec& spec, int rounds) {
  std::vector<double> probes, limits, subjects, rivals;  // limits: the mean of two probes
  for (int round = -1; round < rounds; ++round) {  // the first fills caches and does not count
    const auto take_turn = [&](const Contender& contender, std::vector<double>* rates) {
      const double rate = Rate(contender, spec.uses_thread_time);
      if (round >= 0) rates->push_back(rate);
    };
    if (spec.limit) take_turn(*spec.limit, &probes);
    take_turn(spec.subject, &subjects);
    if (spec.limit) take_turn(*spec.limit, &probes);
    if (spec.limit && round >= 0) limits.push_back((probes.end()[-2] + probes.back()) / 2);
    if (spec.rival) take_turn(*spec.rival, &rivals);
  }
  Measurement m;
  m.name = spec.name;
  m.unit = spec.unit;
  m.threads = spec.threads;
  m.goal = spec.goal;
  m.achieved = Median(subjects);
  if (spec.limit && rounds > 0) {
    const std::vector<double> ratios = Ratios(subjects, limits);
    m.limit_name = spec.limit->name;
    m.limit = Median(limits);
    m.ratio = Median(ratios);
    m.ratio_least = *std::min_element(ratios.begin(), ratios.end());
    m.ratio_most = *std::max_element(ratios.begin(), ratios.end());
  }
  if (spec.rival) {
    m.rival_name = spec.rival->name;
    m.rival = Median(rivals);
    m.rival_ratio = Median(Ratios(subjects, rivals));
  }
  return m;
}

}  // namespace emberkv
