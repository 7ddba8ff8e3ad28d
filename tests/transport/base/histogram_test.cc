// SPDX-License-Identifier: Apache-2.0
#include "transport/base/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/random.h"

namespace sluice::base {
namespace histogram_test {

TEST(HistogramQuantile, EmptyIsZero) {
  Histogram h;
  EXPECT_EQ(h.Quantile(0.5), 0);
  EXPECT_EQ(h.count(), 0u);
  EXPECT_EQ(h.min(), 0);
  EXPECT_TRUE(h.Buckets().empty());
}

TEST(HistogramQuantile, SmallValuesAreExact) {
  Histogram h;
  for (int v = 1; v <= 100; ++v) h.Record(v);
  EXPECT_EQ(h.Quantile(0), 1);
  EXPECT_EQ(h.Quantile(0.5), 50);
  EXPECT_EQ(h.Quantile(0.99), 99);
  EXPECT_EQ(h.Quantile(1), 100);
}

TEST(HistogramQuantile, WithinThePromisedErrorOfTheSortedValues) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    Histogram h;
    std::vector<int64_t> values;
    for (int i = 0; i < 5'000; ++i) {
      values.push_back(static_cast<int64_t>(random.Next64() >> (1 + random.Below(63))));
      h.Record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (double q : {0.0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const size_t rank = std::max<size_t>(static_cast<size_t>(std::ceil(q * 5'000)), 1);
      const double truth = static_cast<double>(values[rank - 1]);
      const double seen = static_cast<double>(h.Quantile(q));
      EXPECT_GE(seen, truth) << q;
      EXPECT_LE(seen, truth * (1 + 1.0 / 127) + 1) << q;
    }
  }
}

TEST(HistogramRecord, PowersOfTwoAndTheirNeighboursFallIntoTheirBuckets) {
  for (int p = 0; p < 63; ++p) {
    for (int64_t delta : {-1, 0, 1}) {
      const int64_t value = (int64_t{1} << p) + delta;
      Histogram h;
      h.Record(value);
      const auto buckets = h.Buckets();
      ASSERT_EQ(buckets.size(), 1u);
      EXPECT_LE(buckets[0].first, value);
      EXPECT_GE(buckets[0].last, value);
    }
  }
  Histogram h;
  h.Record(INT64_MAX);
  h.Record(-5);
  EXPECT_EQ(h.max(), INT64_MAX);
  EXPECT_EQ(h.min(), 0);
}

TEST(HistogramMerge, EqualsRecordingEverythingInOne) {
  SeededRandom random(7);
  Histogram a, b, all;
  for (int i = 0; i < 1'000; ++i) {
    const int64_t value = static_cast<int64_t>(random.Below(1'000'000));
    (i % 3 == 0 ? a : b).Record(value);
    all.Record(value);
  }
  a.Merge(b);
  EXPECT_EQ(a.count(), all.count());
  EXPECT_EQ(a.min(), all.min());
  EXPECT_EQ(a.max(), all.max());
  EXPECT_DOUBLE_EQ(a.mean(), all.mean());
  for (double q : {0.1, 0.5, 0.99}) EXPECT_EQ(a.Quantile(q), all.Quantile(q));
  a.Merge(Histogram());
  EXPECT_EQ(a.min(), all.min());
}

}  // namespace histogram_test
}  // namespace sluice::base
