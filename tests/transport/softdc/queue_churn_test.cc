// SPDX-License-Identifier: Apache-2.0
//
// Queues that come and go at a receiver, beside a sender that stays connected to it.
#include <fcntl.h>

#include <cstdint>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace queue_churn_test {

constexpr uint64_t kKey = 77;
constexpr int kDeepest = 65'536;

// An event that is there already; not 0: there is none.
int GetAsyncEventNow(DcNode& node, ibv_async_event* event) {
  fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK);
  return GetAsyncEvent(node.context, event);
}

// The CQ of each has the id of the one before it, and another ring. How many generations wait at once for the sender to forget
// them depends on the threads; so the most that was ever used at once may still grow for a while, and then does not.
TEST(QueueChurn, QueuesThatComeAndGoBesideALastingSenderUseNothingUp) {
  constexpr int kSteady = 100, kMost = 5000;  // generations
  DcNode sender, receiver;
  shm::Arena& arena = Context::From(receiver.context)->arena();
  uint64_t unused_bytes = 0;
  for (int i = 0, steady = 0; steady < kSteady; ++i) {
    ASSERT_LT(i, kMost) << "each generation keeps some of the arena";
    ibv_cq* cq = CreateCq(receiver.context, kDeepest, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_qp* dct = receiver.MakeDct(cq, receiver.srq, kKey);
    ASSERT_NE(dct, nullptr);
    DcAddress to = receiver.Address();
    to.dctn = dct->qp_num;
    to.dc_key = kKey;
    ASSERT_EQ(sender.Send(to, "x", 1), 0);
    ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS) << "generation " << i;
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    receiver.PostReceives(1);
    ASSERT_EQ(DestroyQp(dct), 0);
    ASSERT_EQ(DestroyCq(cq), 0);
    steady = arena.unused_bytes() == unused_bytes ? steady + 1 : 0;
    unused_bytes = arena.unused_bytes();
  }
}

TEST(QueueChurn, TwoThousandSendersToOneDeepCqFit) {
  DcNode receiver({.cqe = kDeepest});
  shm::Arena& arena = Context::From(receiver.context)->arena();
  const uint64_t before = arena.unused_bytes();
  for (uint32_t link = 1; link <= 2000; ++link) {
    ASSERT_NE(Cq::From(receiver.receive_cq)->RingFor(link).offset, 0u) << "sender " << link;
  }
  EXPECT_LT(before - arena.unused_bytes(), uint64_t{256} << 20);
}

// A sender that got a ring smaller than the CQ waits for the poller, where it would overrun the CQ
// otherwise.
TEST(QueueChurn, SenderWithANarrowRingWaitsWhenItIsFull) {
  constexpr uint32_t kMessages = 2 * shm::kNarrowCapacity, kReceiveBytes = 16;
  DcNode sender({.send_wr = kMessages}), receiver;
  Context& context = *Context::From(receiver.context);
  while (context.ring_budget().Take(2 * kDeepest) != shm::kNarrowCapacity) {
  }
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = kMessages, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = CreateSrq(receiver.pd, &attr);
  ASSERT_NE(srq, nullptr);
  for (uint32_t i = 0; i < kMessages; ++i) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(receiver.slab) + uint64_t{i} * kReceiveBytes,
                .length = kReceiveBytes,
                .lkey = receiver.mr->lkey};
    ibv_recv_wr wr{.wr_id = i, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ibv_cq* cq = CreateCq(receiver.context, kDeepest, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp* dct = receiver.MakeDct(cq, srq, kKey);
  ASSERT_NE(dct, nullptr);
  DcAddress to = receiver.Address();
  to.dctn = dct->qp_num;
  to.dc_key = kKey;
  for (uint32_t i = 0; i < kMessages; ++i) ASSERT_EQ(sender.Send(to, "x", i, 0, 0), 0);
  for (uint32_t i = 0; i < kMessages; ++i) {
    ibv_wc wc{};
    while (ibv_poll_cq(cq, 1, &wc) == 0) {
    }
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  ibv_async_event event;
  EXPECT_NE(GetAsyncEventNow(receiver, &event), 0) << "the CQ was overrun";
  EXPECT_EQ(DestroyQp(dct), 0);
  EXPECT_EQ(DestroyCq(cq), 0);
  EXPECT_EQ(DestroySrq(srq), 0);
}

}  // namespace queue_churn_test
}  // namespace sluice::softdc
