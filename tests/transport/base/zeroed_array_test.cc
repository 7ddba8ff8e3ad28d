// SPDX-License-Identifier: Apache-2.0
#include "transport/base/zeroed_array.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>

namespace sluice::base {
namespace zeroed_array_test {

struct Element {
  uint64_t number;
  uint64_t other;
};

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST(ZeroedArrayTest, BeginsAndAfterClearIsZero) {
  for (const size_t size : {size_t{1}, size_t{1} << 16}) {
    ZeroedArray<Element> elements(size);
    EXPECT_EQ(elements[0].number, 0u);
    EXPECT_EQ(elements[size - 1].other, 0u);
    elements[size - 1] = {.number = 3, .other = 4};
    EXPECT_EQ(elements[size - 1].other, 4u);
    elements.Clear();
    EXPECT_EQ(elements[size - 1].other, 0u);
  }
}

TEST(ZeroedArrayTest, ManyElementsTakeMemoryAsTheyAreTouched) {
  const long faults = PageFaults();
  ZeroedArray<Element> elements(1 << 16);
  elements[7].number = 1;
  elements.Clear();
  EXPECT_LT(PageFaults() - faults, 50);
}

}  // namespace zeroed_array_test
}  // namespace sluice::base
