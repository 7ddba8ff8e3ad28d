// SPDX-License-Identifier: Apache-2.0
//
// The limit of a shared receive queue (man ibv_modify_srq): one event when fewer WQEs than that are
// left. Taken by another process: srq_limit_process_test.
#include <poll.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace srq_limit_test {

bool EventWaits(const DcNode& node) {
  pollfd entry{.fd = node.context->async_fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

int Arm(const DcNode& node, uint32_t limit) {
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  return ModifySrq(node.srq, &attr, IBV_SRQ_LIMIT);
}

uint32_t Armed(const DcNode& node) {
  ibv_srq_attr attr{};
  EXPECT_EQ(QuerySrq(node.srq, &attr), 0);
  return attr.srq_limit;
}

void ExpectEvent(const DcNode& node) {
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, node.srq);
  AckAsyncEvent(&event);
}

TEST(SrqLimit, EventComesWhenFewerAreLeftAndOnce) {
  DcNode a, b({.receives = 4});
  ASSERT_EQ(Arm(b, 3), 0);
  EXPECT_EQ(Armed(b), 3u);
  ASSERT_EQ(a.Send(b.Address(), "leaves 3", 1), 0);
  b.PollReceive();
  EXPECT_FALSE(EventWaits(b));
  ASSERT_EQ(a.Send(b.Address(), "leaves 2", 2), 0);
  ExpectEvent(b);
  EXPECT_EQ(Armed(b), 0u);
  ASSERT_EQ(a.Send(b.Address(), "one shot", 3), 0);
  b.PollReceive();
  b.PollReceive();
  EXPECT_FALSE(EventWaits(b));
}

TEST(SrqLimit, ArmedAgainItComesAgain) {
  DcNode a, b({.receives = 4});
  for (uint64_t round = 0; round < 3; ++round) {
    ASSERT_EQ(Arm(b, 4), 0);
    ASSERT_EQ(a.Send(b.Address(), "x", round), 0);
    ExpectEvent(b);
    b.PollReceive();
    b.PostReceives(1);
  }
}

TEST(SrqLimit, ArmedAboveWhatIsPostedItComesAtOnce) {
  DcNode b({.receives = 4});
  ASSERT_EQ(Arm(b, 5), 0);
  ExpectEvent(b);
}

TEST(SrqLimit, ZeroDisarms) {
  DcNode a, b({.receives = 2});
  ASSERT_EQ(Arm(b, 2), 0);
  ASSERT_EQ(Arm(b, 0), 0);
  ASSERT_EQ(a.Send(b.Address(), "x", 1), 0);
  b.PollReceive();
  EXPECT_FALSE(EventWaits(b));
}

TEST(SrqLimit, OutOfRangeAndResizeAreRefused) {
  DcNode b;
  ibv_srq_attr attr{};
  ASSERT_EQ(QuerySrq(b.srq, &attr), 0);
  EXPECT_EQ(Arm(b, attr.max_wr), EINVAL);
  attr.max_wr *= 2;
  EXPECT_EQ(ModifySrq(b.srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  EXPECT_EQ(ModifySrq(b.srq, &attr, 1 << 5), EINVAL);
}

}  // namespace srq_limit_test
}  // namespace sluice::softdc
