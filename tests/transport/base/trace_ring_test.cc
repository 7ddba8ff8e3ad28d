// SPDX-License-Identifier: Apache-2.0
#include "transport/base/trace_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace sluice::base {
namespace trace_ring_test {

TraceRecord Numbered(uint64_t i) {
  return {static_cast<int64_t>(i), i, i, static_cast<uint32_t>(i), static_cast<uint16_t>(i), 7};
}

TEST(TraceRingTest, KeepsTheNewestInOrder) {
  TraceRing ring(3);  // rounded up to 4
  EXPECT_TRUE(ring.Copy().empty());
  for (uint64_t i = 1; i <= 3; ++i) ring.Add(Numbered(i));
  EXPECT_EQ(ring.Copy(), (std::vector<TraceRecord>{Numbered(1), Numbered(2), Numbered(3)}));
  for (uint64_t i = 4; i <= 10; ++i) ring.Add(Numbered(i));
  EXPECT_EQ(ring.Copy(),
            (std::vector<TraceRecord>{Numbered(7), Numbered(8), Numbered(9), Numbered(10)}));
  EXPECT_EQ(ring.added(), 10u);
}

TEST(TraceRingTest, WithoutRecordsKeepsNothing) {
  TraceRing ring(0);
  ring.Add(Numbered(1));
  EXPECT_TRUE(ring.Copy().empty());
}

TEST(TraceRingTest, RecordsThatAreOverwrittenMeanwhileAreLeftOut) {
  TraceRing ring(8);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (uint64_t i = 1; !stop.load(); ++i) ring.Add(Numbered(i));
  });
  uint64_t whole = 0;
  while (whole < 1000 || ring.added() < 100'000) {
    uint64_t before = 0;
    for (const TraceRecord& record : ring.Copy()) {
      EXPECT_EQ(record, Numbered(record.id));
      EXPECT_GT(record.id, before);
      before = record.id;
      ++whole;
    }
    if (::testing::Test::HasFailure()) break;
  }
  stop.store(true);
  writer.join();
}

}  // namespace trace_ring_test
}  // namespace sluice::base
