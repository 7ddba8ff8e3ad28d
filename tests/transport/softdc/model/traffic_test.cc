// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/traffic.h"

#include <gtest/gtest.h>

#include "tests/transport/softdc/plain_node.h"

namespace sluice::softdc {
namespace traffic_test {

TEST(Traffic, EndedCountersStayInTheTotal) {
  const Traffic before = Traffic::Total();
  {
    TrafficCounter one, two;
    one.Add(1, 100);
    two.Add(2, 10);
    EXPECT_EQ(Traffic::Total().bytes - before.bytes, 110u);
  }
  EXPECT_EQ(Traffic::Total().bytes - before.bytes, 110u);
  EXPECT_EQ(Traffic::Total().requests - before.requests, 3u);
}

TEST(Traffic, QueuesCountWhatTheyAreGiven) {
  PlainPair pair;
  const Traffic before = Traffic::Total();
  ASSERT_EQ(pair.a.Send("eleven char", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(Traffic::Total().bytes - before.bytes, 11u);
  EXPECT_EQ(Traffic::Total().requests - before.requests, 1u);
}

}  // namespace traffic_test
}  // namespace sluice::softdc
