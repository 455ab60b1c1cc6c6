#include "cli/bench_report.h"

#include <gtest/gtest.h>

namespace emberkv {
namespace {

using Json = nlohmann::ordered_json;

Measurement Sample() {
  Measurement m;
  m.name = "matrix-vector";
  m.unit = "GB/s";
  m.threads = 2;
  m.achieved = 30;
  m.limit_name = "DRAM read";
  m.limit = 40;
  m.ratio = 0.75;
  m.ratio_least = 0.7;
  m.ratio_most = 0.8;
  m.goal = 0.9;
  m.rival_name = "OpenBLAS";
  m.rival = 10;
  m.rival_ratio = 3;
  return m;
}

std::string ReportOf(std::vector<Measurement> all) { return Json{{"measurements", MeasurementsJson(all)}}.dump(); }

TEST(BenchReport, ALineSaysWhatWasReachedAndWhatWasMissed) {
  const Measurement m = Sample();
  const std::string text = MeasurementsText({&m, 1});
  for (const char* part : {"matrix-vector", "30.0 GB/s", "40.0 DRAM read", "0.75 (0.70-0.80)", "0.90 missed", "3.0 x OpenBLAS"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(BenchReport, AFallBeyondTheToleranceIsARegression) {
  Measurement fallen = Sample();
  fallen.ratio = 0.6;
  const Result<BenchComparison> worse = CompareReports(ReportOf({Sample()}), ReportOf({fallen}), 0.1);
  ASSERT_TRUE(worse.ok());
  EXPECT_TRUE(worse->has_regression);
  EXPECT_NE(worse->text.find("fell by 20 %"), std::string::npos) << worse->text;
  EXPECT_FALSE(CompareReports(ReportOf({Sample()}), ReportOf({fallen}), 0.3)->has_regression);
  EXPECT_FALSE(CompareReports(ReportOf({fallen}), ReportOf({Sample()}), 0.1)->has_regression);
}

TEST(BenchReport, MeasurementsAreMatchedByNameAndThreads) {
  Measurement other = Sample();
  other.threads = 1;
  const Result<BenchComparison> comparison = CompareReports(ReportOf({Sample()}), ReportOf({other}), 0.1);
  ASSERT_TRUE(comparison.ok());
  EXPECT_FALSE(comparison->has_regression);
  EXPECT_NE(comparison->text.find("not measured"), std::string::npos);
  EXPECT_NE(comparison->text.find("new"), std::string::npos);
}

TEST(BenchReport, WhatIsNoReportIsRefused) {
  for (const char* text : {"", "[]", "{}", R"({"measurements": 3})", R"({"measurements": [{"name": "x"}]})"}) {
    EXPECT_FALSE(CompareReports(text, ReportOf({}), 0.1).ok()) << text;
    EXPECT_FALSE(CompareReports(ReportOf({}), text, 0.1).ok()) << text;
  }
}

}  // namespace
}  // namespace emberkv
