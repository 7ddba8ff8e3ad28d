// SPDX-License-Identifier: Apache-2.0
#include "tools/latency_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "transport/base/random.h"

namespace sluice::tools {
namespace latency_report_test {

using ::testing::HasSubstr;

TEST(FormatNsTest, ThreeDigitsAndAUnit) {
  EXPECT_EQ(FormatNs(0), "0 ns");
  EXPECT_EQ(FormatNs(973), "973 ns");
  EXPECT_EQ(FormatNs(999.6), "1.00 us");
  EXPECT_EQ(FormatNs(1230), "1.23 us");
  EXPECT_EQ(FormatNs(12'340), "12.3 us");
  EXPECT_EQ(FormatNs(123'400), "123 us");
  EXPECT_EQ(FormatNs(45'600'000), "45.6 ms");
  EXPECT_EQ(FormatNs(2e12), "2000 s");
}

TEST(SummariseTest, AgreesWithTheValues) {
  base::Histogram histogram;
  base::SeededRandom random(7);
  double sum = 0;
  double squares = 0;
  constexpr int kValues = 100'000;
  for (int i = 0; i < kValues; ++i) {
    const auto value = static_cast<int64_t>(random.Below(1'000'000));
    histogram.Record(value);
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  const double mean = sum / kValues;
  const double stdev = std::sqrt(squares / kValues - mean * mean);
  const LatencySummary summary = Summarise(histogram);
  EXPECT_EQ(summary.count(), kValues);
  EXPECT_NEAR(summary.mean_ns(), mean, 1e-6 * mean);
  EXPECT_NEAR(summary.stdev_ns(), stdev, summary.relative_error() * stdev);
  EXPECT_NEAR(summary.p50_ns(), 500'000, 10'000);
  uint64_t in_buckets = 0;
  for (const LatencyBucket& bucket : summary.buckets()) in_buckets += bucket.count();
  EXPECT_EQ(in_buckets, kValues);
}

TEST(HistogramTextTest, EmptyHistogramHasNoLines) {
  EXPECT_EQ(HistogramText(base::Histogram()), "");
}

TEST(HistogramTextTest, OneValueIsOneFullBar) {
  base::Histogram histogram;
  histogram.RecordMany(500, 10);
  const std::string text = HistogramText(histogram);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  EXPECT_THAT(text, HasSubstr("100.00 %"));
}

TEST(HistogramTextTest, LinesAreBoundedAndTheTailIsOneOfThem) {
  base::Histogram histogram;
  for (int64_t value = 1; value < 100'000'000'000; value = value * 5 / 4 + 1)
    histogram.RecordMany(value, 100);
  histogram.RecordMany(1'000'000'000'000, 1);
  const std::string text = HistogramText(histogram);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), kMaxRows);
  EXPECT_THAT(text, HasSubstr("more"));
}

}  // namespace latency_report_test
}  // namespace sluice::tools
