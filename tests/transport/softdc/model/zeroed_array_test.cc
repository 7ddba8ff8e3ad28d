// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/zeroed_array.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "transport/softdc/model/wqe.h"

namespace sluice::softdc {
namespace zeroed_array_test {

long PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

bool IsFresh(const StreamState& state) {
  return !state.errored && state.waiting == 0 && state.held_in_pass == 0;
}

TEST(ZeroedArrayTest, BeginsAndAfterClearIsAsFresh) {
  for (const size_t size : {size_t{1}, size_t{1} << 16}) {
    ZeroedArray<StreamState> states(size);
    EXPECT_TRUE(IsFresh(states[0]) && IsFresh(states[size - 1]));
    states[size - 1] = {.errored = true, .waiting = 3, .held_in_pass = 4};
    EXPECT_TRUE(states[size - 1].errored);
    states.Clear();
    EXPECT_TRUE(IsFresh(states[size - 1]));
  }
}

// A DCI has 65536 streams, a megabyte, and a probe makes a DCI.
TEST(ZeroedArrayTest, ManyElementsTakeMemoryAsTheyAreTouched) {
  const long faults = PageFaults();
  ZeroedArray<StreamState> states(1 << 16);
  states[7].waiting = 1;
  states.Clear();
  EXPECT_LT(PageFaults() - faults, 50);
}

}  // namespace zeroed_array_test
}  // namespace sluice::softdc
