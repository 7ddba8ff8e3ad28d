// SPDX-License-Identifier: Apache-2.0
//
// Extended completion queues (man ibv_create_cq_ex): completions read field by field.
#include <arpa/inet.h>
#include <poll.h>

#include <memory>
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

constexpr uint64_t kStandard = IBV_WC_STANDARD_FLAGS;

class ExtendedCq : public ConformanceTest {
 protected:
  // Target's receive CQ is an extended one.
  void Make(uint64_t wc_flags = kStandard) {
    sender_ = std::make_unique<Node>(bed());
    target_ = std::make_unique<Node>(bed(), OnHost(1, {.wc_flags = wc_flags}));
    cq_ = reinterpret_cast<ibv_cq_ex*>(target_->receive_cq);
  }
  // Polls until there is a completion; end_poll is the caller's.
  void AwaitStart() {
    bed().Await("a completion", [&] {
      ibv_poll_cq_attr attr{};
      const int result = ibv_start_poll(cq_, &attr);
      EXPECT_TRUE(result == 0 || result == ENOENT);
      return result == 0;
    });
  }
  void SendAndSee(const std::string& text) {
    ASSERT_EQ(sender_->Post(target_->address(), {.text = text}), 0);
    EXPECT_EQ(sender_->AwaitSend().status, IBV_WC_SUCCESS);
  }

  std::unique_ptr<Node> sender_, target_;
  ibv_cq_ex* cq_ = nullptr;
};
ON_EVERY_DEVICE(ExtendedCq);

TEST_P(ExtendedCq, SaysEverythingThatWasAskedFor) {
  PROVES(165);
  Make(kStandard | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP);
  ASSERT_EQ(sender_->Post(target_->address(), {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
                                               .text = "hello",
                                               .remote_offset = Node::kFreeOffset,
                                               .imm = 7}),
            0);
  AwaitStart();
  EXPECT_EQ(cq_->status, IBV_WC_SUCCESS);
  EXPECT_EQ(cq_->wr_id, 0u);
  EXPECT_EQ(ibv_wc_read_opcode(cq_), IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ibv_wc_read_byte_len(cq_), 5u);
  EXPECT_EQ(ibv_wc_read_imm_data(cq_), htonl(7));
  EXPECT_EQ(ibv_wc_read_wc_flags(cq_), static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ibv_wc_read_qp_num(cq_), target_->dct->qp_num);
  EXPECT_EQ(ibv_wc_read_src_qp(cq_), sender_->dci->qp_num);
  EXPECT_EQ(ibv_wc_read_vendor_err(cq_), 0u);
  const uint64_t first = ibv_wc_read_completion_ts(cq_);
  EXPECT_EQ(ibv_next_poll(cq_), ENOENT);
  ibv_end_poll(cq_);
  SendAndSee("later");
  AwaitStart();
  EXPECT_GT(ibv_wc_read_completion_ts(cq_), first);
  ibv_end_poll(cq_);
}

TEST_P(ExtendedCq, EmptyQueueNeedsNoEnd) {
  PROVES(165);
  Make();
  ibv_poll_cq_attr attr{};
  EXPECT_EQ(ibv_start_poll(cq_, &attr), ENOENT);
  EXPECT_EQ(ibv_start_poll(cq_, &attr), ENOENT);
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_start_poll(cq_, &attr), EINVAL);
}

TEST_P(ExtendedCq, NextGoesOnAndPlainPollingSeesTheSameQueue) {
  PROVES(165);
  Make();
  for (const char* text : {"a", "bb", "ccc"}) SendAndSee(text);
  AwaitStart();
  EXPECT_EQ(ibv_wc_read_byte_len(cq_), 1u);
  ASSERT_EQ(ibv_next_poll(cq_), 0);
  EXPECT_EQ(ibv_wc_read_byte_len(cq_), 2u);
  ibv_end_poll(cq_);
  EXPECT_EQ(target_->AwaitReceive().byte_len, 3u);
}

TEST_P(ExtendedCq, ErrorsHaveTheirVendorsCode) {
  PROVES(15, 165);
  sender_ = std::make_unique<Node>(bed());
  target_ = std::make_unique<Node>(bed(), OnHost(1, {.receive_bytes = 16, .wc_flags = kStandard}));
  cq_ = reinterpret_cast<ibv_cq_ex*>(target_->receive_cq);
  if (!bed().IsSoftware()) GTEST_SKIP() << "whether a DCT completes such a receive is not known";
  ASSERT_EQ(sender_->Post(target_->address(), {.text = std::string(17, 'x')}), 0);
  AwaitStart();
  EXPECT_EQ(cq_->status, IBV_WC_LOC_LEN_ERR);
  EXPECT_NE(ibv_wc_read_vendor_err(cq_), 0u);
  ibv_end_poll(cq_);
}

TEST_P(ExtendedCq, PostingBetweenStartAndEndIsAllowed) {
  PROVES(165);
  Make();
  SendAndSee("ping");
  AwaitStart();
  ASSERT_EQ(target_->Post(sender_->address(), {.text = "pong"}), 0);
  target_->PostReceives(1);
  ibv_end_poll(cq_);
  EXPECT_EQ(sender_->TextOf(sender_->AwaitReceive()), "pong");
}

TEST_P(ExtendedCq, RaisesEventsAsAnyOther) {
  PROVES(84, 165);
  sender_ = std::make_unique<Node>(bed());
  target_ = std::make_unique<Node>(bed(), OnHost(1, {.channel = true, .wc_flags = kStandard}));
  cq_ = reinterpret_cast<ibv_cq_ex*>(target_->receive_cq);
  ASSERT_EQ(ibv_req_notify_cq(target_->receive_cq, 0), 0);
  SendAndSee("x");
  ibv_cq* told = nullptr;
  void* context = nullptr;
  bed().Await("the event",
              [&] { return api().get_cq_event(target_->channel, &told, &context) == 0; });
  EXPECT_EQ(told, ibv_cq_ex_to_cq(cq_));
  api().ack_cq_events(told, 1);
}

TEST_P(ExtendedCq, ReadersThatWereNotAskedForAreMissing) {
  PROVES(165);
  Node node(bed());
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 64;
  attr.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
  ibv_cq_ex* cq = ibv_create_cq_ex(node.context, &attr);
  ASSERT_NE(cq, nullptr);
  EXPECT_NE(cq->read_byte_len, nullptr);
  EXPECT_NE(cq->read_opcode, nullptr);
  EXPECT_NE(cq->read_wc_flags, nullptr);
  EXPECT_EQ(cq->read_qp_num, nullptr);
  EXPECT_EQ(cq->read_completion_ts, nullptr);
  EXPECT_EQ(api().destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_P(ExtendedCq, WhatItCannotReportOrDoIsRefused) {
  PROVES(165);
  Node node(bed());
  const auto refusal = [&](const auto& spoil) {
    ibv_cq_init_attr_ex attr{};
    attr.cqe = 64;
    attr.wc_flags = kStandard;
    spoil(attr);
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(node.context, &attr), nullptr);
    return errno;
  };
  EXPECT_EQ(refusal([](auto& attr) { attr.wc_flags |= uint64_t{1} << 40; }), EOPNOTSUPP);
  EXPECT_EQ(refusal([](auto& attr) { attr.cqe = 0; }), EINVAL);
  EXPECT_EQ(refusal([](auto& attr) { attr.cqe = 1u << 30; }), EINVAL);
  EXPECT_EQ(refusal([](auto& attr) { attr.comp_vector = 1 << 20; }), EINVAL);
  EXPECT_EQ(refusal([](auto& attr) { attr.comp_mask = 1 << 7; }), EINVAL);
  EXPECT_EQ(refusal([](auto& attr) {
              attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
              attr.flags = 1 << 7;
            }),
            EINVAL);
}

// Twice as many completions as it has room for: some are lost, nobody hears of it, and it goes on.
TEST_P(ExtendedCq, OverrunMayBeIgnored) {
  PROVES(166);
  if (!bed().IsSoftware()) GTEST_SKIP() << "what a device leaves in such a queue is not known";
  Node sender(bed());
  Node target(
      bed(),
      OnHost(1, {.cqe = 4, .wc_flags = kStandard, .cq_flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN}));
  for (int i = 0; i < 32; ++i) {
    ASSERT_EQ(sender.Post(target.address(), {.text = "x"}), 0);
    ASSERT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
  }
  int kept = 0;
  while (!target.NoCompletion(target.receive_cq)) ++kept;
  EXPECT_GE(kept, 4);
  EXPECT_LT(kept, 32);
  pollfd async{.fd = target.context->async_fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&async, 1, 0), 0);
  ASSERT_EQ(sender.Post(target.address(), {.text = "goes on"}), 0);
  EXPECT_EQ(target.TextOf(target.AwaitReceive()), "goes on");
}

}  // namespace
}  // namespace sluice::conformance
