// SPDX-License-Identifier: Apache-2.0
//
// Signature pipelining on RC: the queue stops at bad data, and goes on without what was cancelled.
#include <cstring>

#include "tests/transport/softdc/conformance/signature_test.h"

namespace sluice::conformance {
namespace {

// A storage target: data goes out through a key with a signature, then the reply, fenced.
class Pipelining : public SignatureTest {
 protected:
  static constexpr uint64_t kDataWr = 1, kReplyWr = 2, kErrorWr = 3;
  void ConnectPipelined() {
    PlainOptions options = kWithKeys;
    options.pipelining = true;
    Connect(options);
    for (uint64_t i = 0; i < 4; ++i) Receive(b(), b().Piece(kElsewhere + i * 64, 64), i);
    Protect(a(), kData, 1);
    const CrcSignature in_memory(false);
    key_ = Key(a());
    ASSERT_EQ(Configure(a(), key_, {a().Piece(kData, kProtected)}, &in_memory.attr), 0);
  }
  int Reply(uint64_t wr_id, unsigned flags, const char* text) {
    a().Fill(kElsewhere + wr_id * 64, text);
    return Post(a(), IBV_WR_SEND,
                a().Piece(kElsewhere + wr_id * 64, static_cast<uint32_t>(std::strlen(text))), wr_id,
                0, 0, flags);
  }
  void PostDataAndReply() {
    ASSERT_EQ(Post(a(), IBV_WR_RDMA_WRITE, Through(key_, 0, kBlock), kDataWr, b().mr->rkey,
                   b().Address(kData)),
              0);
    ASSERT_EQ(Reply(kReplyWr, IBV_SEND_SIGNALED | IBV_SEND_FENCE, "good"), 0);
  }
  int ToReadyToSend(ibv_qp_state current) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RTS;
    attr.cur_qp_state = current;
    return api().modify_qp(a().qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
  }
  void AwaitDrained() {
    ibv_async_event event = a().AwaitAsync();
    EXPECT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
    EXPECT_EQ(event.element.qp, a().qp);
    api().ack_async_event(&event);
  }

  mlx5dv_mkey* key_ = nullptr;
};
ON_EVERY_DEVICE(Pipelining);

TEST_P(Pipelining, GoodDataIsFollowedByItsReply) {
  PROVES(143, 147);
  NEEDS_SIGNATURES();
  ConnectPipelined();
  PostDataAndReply();
  EXPECT_EQ(a().AwaitSend().wr_id, kDataWr);
  EXPECT_EQ(a().AwaitSend().wr_id, kReplyWr);
  EXPECT_EQ(b().Text(kElsewhere + b().AwaitReceive().wr_id * 64, 4), "good");
  EXPECT_EQ(a().State(), IBV_QPS_RTS);
}

TEST_P(Pipelining, BadDataStopsTheQueueAndItsReplyIsCancelled) {
  PROVES(143, 144, 145, 146, 147);
  NEEDS_SIGNATURES();
  ConnectPipelined();
  a().slab[kData + 7] ^= std::byte{1};
  PostDataAndReply();
  EXPECT_EQ(a().AwaitSend().wr_id, kDataWr);
  AwaitDrained();
  EXPECT_EQ(a().qp->state, IBV_QPS_RTS) << "the cached state knows nothing";
  EXPECT_TRUE(a().NoCompletion(a().send_cq));
  EXPECT_EQ(Check(key_).err_type, MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD);
  EXPECT_EQ(api().dv_qp_cancel_posted_send_wrs(a().dv, 77), 0);
  EXPECT_EQ(api().dv_qp_cancel_posted_send_wrs(a().dv, kReplyWr), 1);
  ASSERT_EQ(Reply(kErrorWr, IBV_SEND_SIGNALED, "bad"), 0);
  EXPECT_EQ(ToReadyToSend(IBV_QPS_RTR), EINVAL);
  ASSERT_EQ(ToReadyToSend(IBV_QPS_SQD), 0);
  // Cancelled: completes as what it was, without having done it.
  const ibv_wc cancelled = a().AwaitSend();
  EXPECT_EQ(cancelled.wr_id, kReplyWr);
  EXPECT_EQ(cancelled.status, IBV_WC_SUCCESS);
  EXPECT_EQ(cancelled.opcode, IBV_WC_SEND);
  EXPECT_EQ(a().AwaitSend().wr_id, kErrorWr);
  EXPECT_EQ(b().Text(kElsewhere + b().AwaitReceive().wr_id * 64, 3), "bad");
}

TEST_P(Pipelining, CancelledWrIsFlushedWhenTheQueueFails) {
  PROVES(145);
  NEEDS_SIGNATURES();
  ConnectPipelined();
  a().slab[kData + 7] ^= std::byte{1};
  PostDataAndReply();
  EXPECT_EQ(a().AwaitSend().wr_id, kDataWr);
  AwaitDrained();
  EXPECT_EQ(api().dv_qp_cancel_posted_send_wrs(a().dv, kReplyWr), 1);
  ASSERT_EQ(a().ToState(IBV_QPS_ERR), 0);
  const ibv_wc wc = a().AwaitSend();
  EXPECT_EQ(wc.wr_id, kReplyWr);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
}

TEST_P(Pipelining, CancelNeedsAStoppedQueue) {
  PROVES(144);
  NEEDS_SIGNATURES();
  ConnectPipelined();
  EXPECT_EQ(api().dv_qp_cancel_posted_send_wrs(a().dv, kReplyWr), -EINVAL);
}

TEST_P(Pipelining, IsNotForADci) {
  PROVES(30, 142);
  NEEDS_SIGNATURES();
  Node node(bed());
  Node::Creation creation = node.DciCreation();
  creation.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  creation.dv.create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING;
  if (!bed().IsSoftware()) GTEST_SKIP() << "a driver lets it pass, and the DCI can't leave SQD";
  EXPECT_EQ(node.Create(creation), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace sluice::conformance
