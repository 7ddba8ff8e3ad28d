// SPDX-License-Identifier: Apache-2.0
//
// What a completion queue forgets when a queue pair or an SRQ ends, and what it keeps.
#include <memory>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

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

}  // namespace
}  // namespace sluice::softdc
