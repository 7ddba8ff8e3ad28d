// SPDX-License-Identifier: Apache-2.0
//
// Completion channels and async events.
#include <fcntl.h>
#include <poll.h>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

class Events : public ConformanceTest {
 protected:
  static void MakeNonBlocking(int fd) {
    ASSERT_EQ(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
  }
  static bool IsReadable(int fd) {
    pollfd readable{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&readable, 1, 0) == 1;
  }
  // The CQ of the next event on the channel.
  ibv_cq* AwaitEvent(ibv_comp_channel* channel) {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    bed().Await("a completion event",
                [&] { return api().get_cq_event(channel, &cq, &context) == 0; });
    return cq;
  }
  ibv_async_event AwaitAsync(Node& node) {
    ibv_async_event event{};
    bed().Await("an async event", [&] { return api().get_async_event(node.context, &event) == 0; });
    return event;
  }
};
ON_EVERY_DEVICE(Events);

TEST_P(Events, ArmedQueueRaisesOneEvent) {
  PROVES(84);
  Node sender(bed()), target(bed(), OnHost(1, {.channel = true}));
  MakeNonBlocking(target.channel->fd);
  const Address to = target.address();
  ASSERT_EQ(ibv_req_notify_cq(target.receive_cq, 0), 0);
  EXPECT_FALSE(IsReadable(target.channel->fd));
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(sender.Post(to, {.text = "x"}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(AwaitEvent(target.channel), target.receive_cq);
  api().ack_cq_events(target.receive_cq, 1);
  for (int i = 0; i < 3; ++i) target.AwaitReceive();
  // Armed once, told once.
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  EXPECT_EQ(api().get_cq_event(target.channel, &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_P(Events, SolicitedOnlyWaitsForASolicitedOne) {
  PROVES(85);
  Node sender(bed()), target(bed(), OnHost(1, {.channel = true}));
  MakeNonBlocking(target.channel->fd);
  const Address to = target.address();
  ASSERT_EQ(ibv_req_notify_cq(target.receive_cq, 1), 0);
  ASSERT_EQ(sender.Post(to, {.text = "plain"}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "plain");
  EXPECT_FALSE(IsReadable(target.channel->fd));
  ASSERT_EQ(sender.Post(to, {.text = "solicited", .flags = IBV_SEND_SOLICITED}), 0);
  EXPECT_EQ(AwaitEvent(target.channel), target.receive_cq);
  api().ack_cq_events(target.receive_cq, 1);
}

TEST_P(Events, SharedQueueBelowItsLimitIsToldOnce) {
  PROVES(58);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 4}));
  MakeNonBlocking(target.context->async_fd);
  const Address to = target.address();
  const auto arm = [&](uint32_t limit) {
    ibv_srq_attr attr{.max_wr = 0, .max_sge = 0, .srq_limit = limit};
    EXPECT_EQ(api().modify_srq(target.srq, &attr, IBV_SRQ_LIMIT), 0);
  };
  const auto take_one = [&] {
    ASSERT_EQ(sender.Post(to, {.text = "x"}), 0);
    EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
    target.AwaitReceive();
  };
  const auto quiet = [&] {
    ibv_async_event event{};
    return api().get_async_event(target.context, &event) == -1 && errno == EAGAIN;
  };
  arm(3);
  take_one();  // 3 are left: not below
  EXPECT_TRUE(quiet());
  take_one();
  ibv_async_event event = AwaitAsync(target);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, target.srq);
  api().ack_async_event(&event);
  ibv_srq_attr attr{};
  ASSERT_EQ(api().query_srq(target.srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);  // disarmed by its event
  take_one();
  EXPECT_TRUE(quiet());
  target.PostReceives(3);  // 4 again
  arm(4);
  take_one();
  event = AwaitAsync(target);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  api().ack_async_event(&event);
  arm(2);
  arm(0);
  take_one();
  take_one();
  EXPECT_TRUE(quiet());
}

TEST_P(Events, OverrunOfACompletionQueueIsAnAsyncEvent) {
  PROVES(71);
  if (!bed().IsSoftware()) GTEST_SKIP() << "would leave the device with a broken queue";
  Node sender(bed(), {.send_wr = 64, .cqe = 4}), target(bed(), OnHost(1));
  MakeNonBlocking(sender.context->async_fd);
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(sender.Post(target.address(), {.text = "x"}), 0);
    target.AwaitReceive();
    target.PostReceives(1);
  }
  ibv_async_event event = AwaitAsync(sender);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, sender.send_cq);
  api().ack_async_event(&event);
}

}  // namespace
}  // namespace sluice::conformance
