// SPDX-License-Identifier: Apache-2.0
//
// A doorbell of one plain request (fabric_shm/lone_request.cc). What was concluded about memory for an earlier doorbell does not outlive a
// change of rights, and whatever is not plain ends as it does among others.
#include <cstddef>
#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace lone_request_test {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr size_t kTo = DcNode::kSendAreaOffset + (256 << 10);  // in the target's slab
constexpr size_t kRegionBytes = 256;

class LoneRequestTest : public ::testing::Test {
 protected:
  // The first request to a target waits for an answer about it, so it is none of these.
  void Meet(DcNode& b) {
    ASSERT_EQ(a_.Send(b.Address(), "hello", 0), 0);
    ASSERT_EQ(a_.PollSend().status, IBV_WC_SUCCESS);
    ASSERT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
  }
  ibv_wc_status Send(DcNode& b, const std::string& text, uint16_t stream = 0) {
    EXPECT_EQ(a_.Send(b.Address(), text, ++wr_id_, stream), 0);
    return Ended();
  }
  ibv_wc_status Write(DcNode& b, const std::string& text, uint16_t stream, uint32_t rkey) {
    EXPECT_EQ(a_.Write(b.Address(), kTo, text, ++wr_id_, stream, rkey), 0);
    return Ended();
  }
  ibv_wc_status Ended() {
    const ibv_wc wc = a_.PollSend();
    EXPECT_EQ(wc.wr_id, wr_id_);
    return wc.status;
  }
  static std::string TextAt(const DcNode& node, size_t offset, size_t bytes) {
    return {reinterpret_cast<const char*>(node.slab + offset), bytes};
  }

  DcNode a_{{.log_errored_streams = 4}};
  uint64_t wr_id_ = 0;
};

TEST_F(LoneRequestTest, RightsThatWereTakenBetweenTwoWritesAreMissed) {
  DcNode b;
  Meet(b);
  ibv_mr* mr = RegMr(b.pd, b.slab + kTo, kRegionBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Write(b, "one", 1, rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
  ASSERT_EQ(mr->rkey, rkey);
  EXPECT_EQ(Write(b, "two", 2, rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(TextAt(b, kTo, 3), "one");
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess), 0);
  EXPECT_EQ(Write(b, "six", 3, rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(TextAt(b, kTo, 3), "six");
  ASSERT_EQ(DeregMr(mr), 0);
  EXPECT_EQ(Write(b, "ten", 4, rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(TextAt(b, kTo, 3), "six");
}

TEST_F(LoneRequestTest, ADomainThatWasChangedBetweenTwoWritesIsMissed) {
  DcNode b;
  Meet(b);
  ibv_mr* mr = RegMr(b.pd, b.slab + kTo, kRegionBytes, kAccess);
  ibv_pd* other = AllocPd(b.context);
  ASSERT_TRUE(mr != nullptr && other != nullptr);
  const uint32_t rkey = mr->rkey;
  EXPECT_EQ(Write(b, "one", 1, rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  ASSERT_EQ(mr->rkey, rkey);
  EXPECT_EQ(Write(b, "two", 2, rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(TextAt(b, kTo, 3), "one");
  EXPECT_EQ(DeregMr(mr), 0);
  EXPECT_EQ(DeallocPd(other), 0);
}

// Two regions in turn, one shorter than the other: what is known of one says nothing of the other.
TEST_F(LoneRequestTest, EachWriteIsJudgedByItsOwnRegion) {
  DcNode b;
  Meet(b);
  ibv_mr* mr = RegMr(b.pd, b.slab + kTo, 4, kAccess);
  ASSERT_NE(mr, nullptr);
  for (uint16_t round = 0; round < 3; ++round) {
    EXPECT_EQ(Write(b, "abcd", 0, mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(Write(b, "hello", 0, 0), IBV_WC_SUCCESS);
    EXPECT_EQ(TextAt(b, kTo, 5), "hello");
    const auto stream = static_cast<uint16_t>(round + 1);
    EXPECT_EQ(Write(b, "hallo", stream, mr->rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(TextAt(b, kTo, 5), "hello");
  }
  EXPECT_EQ(DeregMr(mr), 0);
}

TEST_F(LoneRequestTest, AReceiveBufferWhoseMemoryHasGoneIsNotWritten) {
  DcNode b{{.receives = 0}};
  b.PostReceives(1);
  Meet(b);
  ibv_mr* mr = RegMr(b.pd, b.slab + kTo, kRegionBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const auto post = [&] {
    ibv_sge sge{
        .addr = reinterpret_cast<uint64_t>(b.slab + kTo), .length = kRegionBytes, .lkey = mr->lkey};
    ibv_recv_wr wr{.wr_id = 7, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(b.srq, &wr, &bad), 0);
  };
  post();
  EXPECT_EQ(Send(b, "one"), IBV_WC_SUCCESS);
  EXPECT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
  post();
  ASSERT_EQ(DeregMr(mr), 0);
  EXPECT_EQ(Send(b, "two", 1), IBV_WC_REM_OP_ERR);
  EXPECT_EQ(b.PollReceive().status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(TextAt(b, kTo, 3), "one");
}

TEST_F(LoneRequestTest, ASendThatIsTooLongFailsAtBothEndsAndTheNextArrives) {
  DcNode b{{.receive_bytes = 8}};
  Meet(b);
  EXPECT_EQ(Send(b, "nine char", 1), IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(b.PollReceive().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(Send(b, "eight ch", 2), IBV_WC_SUCCESS);
  const ibv_wc wc = b.PollReceive();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(wc), "eight ch");
}

TEST_F(LoneRequestTest, ASendWaitsForAReceive) {
  DcNode b{{.receives = 0}};
  b.PostReceives(1);
  Meet(b);
  ASSERT_EQ(a_.Send(b.Address(), "patient", ++wr_id_), 0);
  b.PostReceives(2);
  EXPECT_EQ(Ended(), IBV_WC_SUCCESS);
  const ibv_wc wc = b.PollReceive();
  EXPECT_EQ(b.ReceivedText(wc), "patient");
  EXPECT_EQ(Send(b, "next"), IBV_WC_SUCCESS);
}

TEST_F(LoneRequestTest, UnsignalledOnesAreFreeOnceALaterOneIsPolled) {
  DcNode b;
  Meet(b);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 63; ++i) {
      ASSERT_EQ(a_.Send(b.Address(), "quiet", ++wr_id_, 0, /*flags=*/0), 0);
      ASSERT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
      b.PostReceives(1);
    }
    EXPECT_EQ(Send(b, "loud"), IBV_WC_SUCCESS);
    ASSERT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
    b.PostReceives(1);
  }
}

}  // namespace lone_request_test
}  // namespace sluice::softdc
