// SPDX-License-Identifier: Apache-2.0
#include "transport/base/live_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "transport/base/random.h"
#include "transport/base/sampler.h"

namespace sluice::base {
namespace live_histogram_test {

TEST(LiveHistogramTest, BucketsTileTheRange) {
  EXPECT_EQ(LiveHistogram::FirstOf(0), 0);
  for (size_t i = 0; i + 1 < LiveHistogram::kBuckets; ++i) {
    const int64_t first = LiveHistogram::FirstOf(i);
    const int64_t last = LiveHistogram::LastOf(i);
    EXPECT_EQ(LiveHistogram::IndexOf(static_cast<uint64_t>(first)), i);
    EXPECT_EQ(LiveHistogram::IndexOf(static_cast<uint64_t>(last)), i);
    EXPECT_EQ(LiveHistogram::FirstOf(i + 1), last + 1);
    EXPECT_LE((last - first) * 8, std::max<int64_t>(first, 0)) << i;
  }
  EXPECT_EQ(LiveHistogram::IndexOf(UINT64_MAX), LiveHistogram::kBuckets - 1);
  EXPECT_EQ(LiveHistogram::FirstOf(LiveHistogram::kBuckets - 1), int64_t{1} << 40);
}

TEST(LiveHistogramTest, QuantilesAreThoseOfTheSortedValuesUpToABucket) {
  SeededRandom random(7);
  for (int round = 0; round < 20; ++round) {
    LiveHistogram histogram;
    std::vector<int64_t> values;
    uint64_t sum = 0;
    for (int i = 0; i < 2000; ++i) {
      values.push_back(static_cast<int64_t>(random.Next64() >> (24 + random.Below(40))));
      histogram.Record(values.back());
      sum += static_cast<uint64_t>(values.back());
    }
    std::sort(values.begin(), values.end());
    const HistogramCopy copy = histogram.Copy();
    EXPECT_EQ(copy.count(), values.size());
    EXPECT_EQ(copy.sum(), sum);
    for (const double quantile : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const auto rank = static_cast<size_t>(
          std::max(std::ceil(quantile * static_cast<double>(values.size())), 1.0));
      const int64_t exact = values[rank - 1];
      const int64_t seen = copy.Quantile(quantile);
      EXPECT_GE(seen, exact);
      EXPECT_LE(seen, exact + exact / 8);
    }
  }
}

TEST(LiveHistogramTest, MergeIsAsIfRecordedTogether) {
  LiveHistogram one, two, both;
  for (int64_t value : {-5, 0, 3, 100, 100000}) {
    one.Record(value);
    both.Record(value);
  }
  two.Record(1 << 20, 3);
  both.Record(1 << 20, 3);
  HistogramCopy merged = one.Copy();
  merged.Merge(two.Copy());
  const HistogramCopy expected = both.Copy();
  EXPECT_EQ(merged.count(), expected.count());
  EXPECT_EQ(merged.sum(), expected.sum());
  for (int64_t bound : {0, 7, 111, 1 << 19, 1 << 21}) {
    EXPECT_EQ(merged.CountUpTo(bound), expected.CountUpTo(bound)) << bound;
  }
  EXPECT_EQ(expected.CountUpTo(7), 3u);  // -5 counts as 0
  EXPECT_EQ(expected.Buckets().back().count, 3u);
}

TEST(LiveHistogramTest, BucketsBuildACopyElsewhere) {
  LiveHistogram histogram;
  for (int64_t value = 1; value < 100000; value = value * 3 / 2 + 1) histogram.Record(value);
  const HistogramCopy copy = histogram.Copy();
  HistogramCopy rebuilt;
  for (const HistogramCopy::Bucket& bucket : copy.Buckets())
    rebuilt.Add(bucket.first, bucket.count);
  rebuilt.Add(9'999, 1);  // no bucket begins there
  rebuilt.Add(-1, 1);
  EXPECT_EQ(rebuilt.count(), copy.count());
  for (const double quantile : {0.1, 0.5, 0.99}) {
    EXPECT_EQ(rebuilt.Quantile(quantile), copy.Quantile(quantile));
  }
  EXPECT_EQ(HistogramCopy().Quantile(0.5), 0);
}

TEST(LiveHistogramTest, CopyWhileAnotherThreadRecordsIsWhole) {
  LiveHistogram histogram;
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    int64_t value = 0;
    while (!stop.load()) histogram.Record(value++ % 1000);
  });
  uint64_t seen = 0;
  while (seen < 10'000) {
    const HistogramCopy copy = histogram.Copy();
    EXPECT_GE(copy.count(), seen);
    EXPECT_LE(copy.Quantile(1.0), 1023);
    seen = copy.count();
  }
  stop.store(true);
  writer.join();
}

TEST(SamplerTest, PicksItsShareAndAllWhenToldTo) {
  Sampler all(1);
  Sampler eighth(8);
  int hits = 0;
  for (int i = 0; i < 80'000; ++i) {
    EXPECT_TRUE(all.Hit());
    hits += eighth.Hit();
  }
  EXPECT_NEAR(hits, 10'000, 500);
}

}  // namespace live_histogram_test
}  // namespace sluice::base
