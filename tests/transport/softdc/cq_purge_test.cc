// SPDX-License-Identifier: Apache-2.0
//
// What a completion queue forgets when a queue pair or an SRQ ends, and what it keeps.
#include <poll.h>

#include <atomic>
#include <memory>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace cq_purge_test {

uint32_t Unclaimed(DcNode& node) {
  Srq& srq = *Srq::From(node.srq);
  SpinLockHolder hold(srq.lock());
  return srq.owner().Unclaimed();
}

// An RC queue pair with a receive queue of its own that completes in the same CQ comes and goes.
void LetAQueuePairEnd(DcNode& node) {
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = node.receive_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  ibv_qp* qp = CreateQp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  ASSERT_EQ(DestroyQp(qp), 0);
}

// What others have done before, the firmware thread has seen afterwards: one call may overtake the end
// of a socket, but not all of several.
void LetFirmwareRun() {
  for (int i = 0; i < 3; ++i) Loop::Get().RunAndWait([] {});
}

TEST(CqPurge, CompletionsOfADestroyedSrqAreNotOfTheNextOneWithItsId) {
  DcNode sender, receiver;
  ASSERT_EQ(sender.Send(receiver.Address(), "unread", 1), 0);
  ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  receiver.DestroyTarget();
  const uint32_t id = Srq::From(receiver.srq)->id();
  ASSERT_EQ(DestroySrq(receiver.srq), 0);
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  receiver.srq = CreateSrq(receiver.pd, &init);
  ASSERT_NE(receiver.srq, nullptr);
  ASSERT_EQ(Srq::From(receiver.srq)->id(), id);
  ibv_recv_wr wr{.wr_id = 99, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(receiver.srq, &wr, &bad), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(receiver.receive_cq, 1, &wc), 0) << "of wr_id " << wc.wr_id;
  EXPECT_EQ(Srq::From(receiver.srq)->owner().outstanding(), 1u);
}

TEST(CqPurge, OthersUnreadReceivesAreNotPostedAgainWhenTheirSenderGoes) {
  auto sender = std::make_unique<DcNode>();
  DcNode receiver;
  ASSERT_EQ(sender->Send(receiver.Address(), "unread", 1), 0);
  ASSERT_EQ(sender->PollSend().status, IBV_WC_SUCCESS);
  const uint32_t left = Unclaimed(receiver);
  LetAQueuePairEnd(receiver);
  sender.reset();
  LetFirmwareRun();
  EXPECT_EQ(Unclaimed(receiver), left) << "a buffer that holds a message is offered to senders";
  EXPECT_EQ(receiver.ReceivedText(receiver.PollReceive()), "unread");
}

TEST(CqPurge, OthersUnreadReceivesStayInOrder) {
  DcNode sender, receiver;
  for (const char* text : {"first", "second"}) {
    ASSERT_EQ(sender.Send(receiver.Address(), text, 1), 0);
    ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
    LetAQueuePairEnd(receiver);
  }
  EXPECT_EQ(receiver.ReceivedText(receiver.PollReceive()), "first");
  EXPECT_EQ(receiver.ReceivedText(receiver.PollReceive()), "second");
}

TEST(CqPurge, ReceivesOfUnreadCompletionsAreNotLostWithTheirCq) {
  DcNode sender, receiver;
  ASSERT_EQ(sender.Send(receiver.Address(), "unread", 1), 0);
  ASSERT_EQ(sender.PollSend().status, IBV_WC_SUCCESS);
  const uint32_t outstanding = Srq::From(receiver.srq)->owner().outstanding();
  receiver.DestroyTarget();
  ASSERT_EQ(DestroyCq(receiver.receive_cq), 0);
  receiver.receive_cq = CreateCq(receiver.context, 16, nullptr, nullptr, 0);
  EXPECT_EQ(Srq::From(receiver.srq)->owner().outstanding(), outstanding - 1)
      << "the SRQ has one place less for good";
}

// The firmware thread looks at all SRQs whenever some sender rings.
TEST(CqPurge, AnSrqIsFoundOnlyWhenItIsWhole) {
  constexpr uint32_t kDeep = (1 << 15) - 1;
  DcNode node;
  Context& context = *Context::From(node.context);
  std::atomic<bool> done{false};
  std::thread firmware([&] {
    while (!done.load()) context.CollectNotices();
  });
  for (int i = 0; i < 50; ++i) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = kDeep, .max_sge = 1, .srq_limit = 0};
    ibv_srq* srq = CreateSrq(node.pd, &init);
    EXPECT_NE(srq, nullptr);
    EXPECT_EQ(DestroySrq(srq), 0);
  }
  done = true;
  firmware.join();
}

TEST(CqPurge, ACqThatHasGrownHasRoomForThoseWhoSentBefore) {
  constexpr int kMessages = 60;
  DcNode sender, receiver({.cqe = 8});
  ASSERT_EQ(sender.Send(receiver.Address(), "first", 0), 0);
  EXPECT_EQ(receiver.PollReceive().status, IBV_WC_SUCCESS);
  ASSERT_EQ(ResizeCq(receiver.receive_cq, 2 * kMessages), 0);
  for (int i = 0; i < kMessages; ++i) {
    ASSERT_EQ(sender.Send(receiver.Address(), "x", 1, /*stream=*/0, /*flags=*/0), 0);
  }
  pollfd events{.fd = receiver.context->async_fd, .events = POLLIN, .revents = 0};
  for (int i = 0; i < kMessages; ++i) {
    ibv_wc wc{};
    while (ibv_poll_cq(receiver.receive_cq, 1, &wc) == 0) {
      ASSERT_EQ(poll(&events, 1, 0), 0) << "the CQ was overrun";
    }
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
}

TEST(CqPurge, ASleepingOwnerKeepsNoRingsOfSendersThatHaveGone) {
  DcNode receiver;
  shm::Arena& arena = Context::From(receiver.context)->arena();
  Cq& cq = *Cq::From(receiver.receive_cq);
  uint64_t unused_bytes = 0;
  for (uint32_t link = 1000; link < 1010; ++link) {
    ASSERT_NE(cq.RingFor(link).offset, 0u);
    cq.LinkDied(link);
    if (link == 1000) unused_bytes = arena.unused_bytes();
  }
  EXPECT_EQ(arena.unused_bytes(), unused_bytes);
}

// Ids of links come round again.
TEST(CqPurge, ASenderDoesNotGetTheRingOfADeadOne) {
  DcNode receiver;
  Cq& cq = *Cq::From(receiver.receive_cq);
  const Cq::RingPlace first = cq.RingFor(1000);
  auto producer = shm::CqeProducer::Attach(
      Context::From(receiver.context)->arena().At(first.offset), first.size_bytes);
  ASSERT_TRUE(producer && producer->CanPublish(1));
  producer->Publish({.wqe_index = 0, .srq_id = 0});
  cq.LinkDied(1000);
  EXPECT_NE(cq.RingFor(1000).offset, first.offset) << "its first entry is not where it writes";
}

}  // namespace cq_purge_test
}  // namespace sluice::softdc
