// SPDX-License-Identifier: Apache-2.0
//
// A completion queue that is full: IBV_EVENT_CQ_ERR once, and what comes later is lost (docs/softdc.md, "Full completion queues").
#include <poll.h>

#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace cq_overrun_test {

constexpr int kCqe = 8;
// More than any ring of a queue of that depth holds.
constexpr int kTooMany = 4 * kCqe;

bool EventWaits(const DcNode& node) {
  pollfd entry{.fd = node.context->async_fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

void ExpectCqError(const DcNode& node, const ibv_cq* cq) {
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, cq);
  AckAsyncEvent(&event);
}

int PollAll(ibv_cq* cq) {
  std::vector<ibv_wc> wc(kTooMany);
  int count = 0;
  for (int got = 0; (got = ibv_poll_cq(cq, kTooMany, wc.data())) > 0;) count += got;
  return count;
}

TEST(CqOverrun, SendCompletionsBeyondTheDepthAreLost) {
  DcNode a({.cqe = kCqe}), b({.receives = kTooMany + 1});
  for (int i = 0; i < kTooMany; ++i) ASSERT_EQ(a.Send(b.Address(), "x", i), 0);
  for (int i = 0; i < kTooMany; ++i) b.PollReceive();
  ExpectCqError(a, a.send_cq);
  EXPECT_EQ(PollAll(a.send_cq), kCqe);
  // In error for good: room does not help any more.
  ASSERT_EQ(a.Send(b.Address(), "x", 99), 0);
  b.PollReceive();
  EXPECT_EQ(PollAll(a.send_cq), 0);
  EXPECT_FALSE(EventWaits(a));
}

TEST(CqOverrun, ReceiveCompletionsBeyondTheDepthAreLostAndTheSenderGoesOn) {
  DcNode a, b({.receives = kTooMany + 1, .cqe = kCqe});
  for (int i = 0; i < kTooMany; ++i) {
    ASSERT_EQ(a.Send(b.Address(), "x", i), 0);
    ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  }
  ExpectCqError(b, b.receive_cq);
  const int kept = PollAll(b.receive_cq);
  EXPECT_GE(kept, kCqe);
  EXPECT_LT(kept, kTooMany);
  ASSERT_EQ(a.Send(b.Address(), "x", 99), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(PollAll(b.receive_cq), 0);
  EXPECT_FALSE(EventWaits(b));
}

TEST(CqOverrun, AQueueThatIsPolledInTimeIsNeverOverrun) {
  DcNode a({.cqe = kCqe}), b({.receives = kCqe, .cqe = kCqe});
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < kCqe; ++i) ASSERT_EQ(a.Send(b.Address(), "x", i), 0);
    for (int i = 0; i < kCqe; ++i) a.PollSend();
    for (int i = 0; i < kCqe; ++i) b.PollReceive();
    b.PostReceives(kCqe);
  }
  EXPECT_FALSE(EventWaits(a));
  EXPECT_FALSE(EventWaits(b));
}

TEST(CqOverrun, AResizedQueueHasTheNewDepth) {
  DcNode a({.cqe = kCqe}), b({.receives = kTooMany});
  ASSERT_EQ(ResizeCq(a.send_cq, kTooMany), 0);
  EXPECT_GE(a.send_cq->cqe, kTooMany);
  for (int i = 0; i < kTooMany; ++i) ASSERT_EQ(a.Send(b.Address(), "x", i), 0);
  for (int i = 0; i < kTooMany; ++i) EXPECT_EQ(a.PollSend().wr_id, static_cast<uint64_t>(i));
  for (int i = 0; i < kTooMany; ++i) b.PollReceive();
  EXPECT_FALSE(EventWaits(a));
}

}  // namespace cq_overrun_test
}  // namespace sluice::softdc
