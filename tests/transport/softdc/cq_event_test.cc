// SPDX-License-Identifier: Apache-2.0
//
// Completion channels: one event per arming, on a descriptor that polls.
#include <poll.h>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace cq_event_test {

bool Readable(int fd, int timeout_ms) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

TEST(CqEvent, ArmedQueueFiresOnceAtTheNextCompletion) {
  DcNode a, b({.channel = true});
  ASSERT_EQ(ibv_req_notify_cq(b.receive_cq, 0), 0);
  EXPECT_FALSE(Readable(b.channel->fd, 0));
  ASSERT_EQ(a.Send(b.Address(), "x", 1), 0);
  ASSERT_EQ(a.Send(b.Address(), "y", 2), 0);
  ASSERT_TRUE(Readable(b.channel->fd, -1));
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(GetCqEvent(b.channel, &cq, &cq_context), 0);
  EXPECT_EQ(cq, b.receive_cq);
  EXPECT_EQ(cq_context, &b);
  AckCqEvents(cq, 1);
  b.PollReceive();
  b.PollReceive();
  EXPECT_FALSE(Readable(b.channel->fd, 0));
}

TEST(CqEvent, UnarmedQueueStaysSilent) {
  DcNode a, b({.channel = true});
  ASSERT_EQ(a.Send(b.Address(), "x", 1), 0);
  b.PollReceive();
  EXPECT_FALSE(Readable(b.channel->fd, 0));
}

TEST(CqEvent, ArmingAgainBeforeFetchingKeepsBothEvents) {
  DcNode a, b({.channel = true});
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  // The loop carries out the first message to a peer, and looks at the arming after the completion is visible: a second arming
  // between the two would have no event of its own. The next messages are carried out in the call.
  ASSERT_EQ(a.Send(b.Address(), "first", 1), 0);
  b.PollReceive();
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(ibv_req_notify_cq(b.receive_cq, 0), 0);
    ASSERT_EQ(a.Send(b.Address(), "x", 1), 0);
    b.PollReceive();
  }
  ASSERT_EQ(GetCqEvent(b.channel, &cq, &cq_context), 0);
  ASSERT_EQ(GetCqEvent(b.channel, &cq, &cq_context), 0);
  EXPECT_FALSE(Readable(b.channel->fd, 0));
  AckCqEvents(cq, 2);
}

}  // namespace cq_event_test
}  // namespace sluice::softdc
