// SPDX-License-Identifier: Apache-2.0
//
// Extended completion queues (man ibv_create_cq_ex), beyond the conformance suite.
#include <cerrno>
#include <ctime>
#include <memory>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace cq_ex_test {

constexpr uint64_t kTimestamps =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
constexpr uint64_t kStandard = IBV_WC_STANDARD_FLAGS;

ibv_cq_init_attr_ex Attributes(uint64_t wc_flags) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 64;
  attr.wc_flags = wc_flags;
  return attr;
}

int64_t NowNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// Polls until there is a completion; end_poll is the caller's.
void StartPoll(ibv_cq_ex* cq) {
  ibv_poll_cq_attr attr{};
  int result = 0;
  while ((result = ibv_start_poll(cq, &attr)) == ENOENT) {
  }
  ASSERT_EQ(result, 0);
}

class CqExTest : public ::testing::Test {
 protected:
  void Make(const DcNodeOptions& options = {}) {
    DcNodeOptions extended = options;
    extended.wc_flags = kStandard | kTimestamps;
    b_ = std::make_unique<DcNode>(extended);
    cq_ = reinterpret_cast<ibv_cq_ex*>(b_->receive_cq);
  }
  DcNode a_;
  std::unique_ptr<DcNode> b_;
  ibv_cq_ex* cq_ = nullptr;
};

TEST_F(CqExTest, ReadsPathFieldsAndBothClocks) {
  Make();
  const int64_t before_ns = NowNs(CLOCK_MONOTONIC), before_wall_ns = NowNs(CLOCK_REALTIME);
  ASSERT_EQ(a_.WriteImm(b_->Address(), DcNode::kSendAreaOffset, "hello", 7, 1), 0);
  StartPoll(cq_);
  EXPECT_EQ(ibv_wc_read_sl(cq_), 10) << "on RoCE the type of the packet: UDP over IPv4 (fact 89)";
  EXPECT_EQ(ibv_wc_read_slid(cq_), 0u);
  EXPECT_EQ(ibv_wc_read_dlid_path_bits(cq_), 0);
  const auto at_ns = static_cast<int64_t>(ibv_wc_read_completion_ts(cq_));
  EXPECT_GE(at_ns, before_ns);
  EXPECT_LE(at_ns, NowNs(CLOCK_MONOTONIC));
  const auto wall_ns = static_cast<int64_t>(ibv_wc_read_completion_wallclock_ns(cq_));
  EXPECT_GE(wall_ns, before_wall_ns - 1'000'000);
  EXPECT_LE(wall_ns, NowNs(CLOCK_REALTIME) + 1'000'000);
  EXPECT_EQ(ibv_next_poll(cq_), ENOENT);
  ibv_end_poll(cq_);
}

// A server posts its answer while it polls.
TEST_F(CqExTest, PostingBetweenStartAndEndIsAllowed) {
  Make({.one_cq = true});
  ASSERT_EQ(a_.Send(b_->Address(), "ping", 1), 0);
  StartPoll(cq_);
  ASSERT_EQ(b_->Send(a_.Address(), "pong", 2), 0);
  ibv_end_poll(cq_);
  EXPECT_EQ(a_.ReceivedText(a_.PollReceive()), "pong");
  StartPoll(cq_);
  EXPECT_EQ(cq_->wr_id, 2u);
  EXPECT_EQ(ibv_wc_read_opcode(cq_), IBV_WC_SEND);
  EXPECT_GT(ibv_wc_read_completion_ts(cq_), 0u);
  ibv_end_poll(cq_);
}

TEST(CqEx, CreateRefusesWhatItCannotReport) {
  DcNode node;
  for (const uint64_t flag : {uint64_t{IBV_WC_EX_WITH_CVLAN}, uint64_t{IBV_WC_EX_WITH_FLOW_TAG},
                              uint64_t{IBV_WC_EX_WITH_TM_INFO}, uint64_t{1} << 40}) {
    ibv_cq_init_attr_ex attr = Attributes(kStandard | flag);
    errno = 0;
    EXPECT_EQ(ibv_create_cq_ex(node.context, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
}

TEST(CqEx, PlainDomainIsNoParentDomain) {
  DcNode node;
  ibv_cq_init_attr_ex attr = Attributes(kStandard);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = node.pd;
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(node.context, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(CqEx, ModerationIsNotSupported) {
  DcNode node;
  ibv_cq_init_attr_ex attr = Attributes(IBV_WC_EX_WITH_BYTE_LEN);
  ibv_cq_ex* cq = ibv_create_cq_ex(node.context, &attr);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_modify_cq(ibv_cq_ex_to_cq(cq), nullptr), EOPNOTSUPP);
  EXPECT_EQ(DestroyCq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST(CqEx, FlagsAndAParentDomainAreTaken) {
  DcNode node;
  ibv_td_init_attr td_attr{};
  ibv_td* td = ibv_alloc_td(node.context, &td_attr);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr domain_attr{};
  domain_attr.pd = node.pd;
  domain_attr.td = td;
  ibv_pd* domain = ibv_alloc_parent_domain(node.context, &domain_attr);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_cq_init_attr_ex attr = Attributes(kStandard);
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  attr.parent_domain = domain;
  ibv_cq_ex* cq = ibv_create_cq_ex(node.context, &attr);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(DestroyCq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(DeallocPd(domain), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST(CqEx, DvCreateTakesTheSizesOfAnEntry) {
  DcNode node;
  ibv_cq_init_attr_ex attr = Attributes(kStandard);
  mlx5dv_cq_init_attr dv{};
  dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  dv.cqe_size = 128;
  ibv_cq_ex* cq = DvCreateCq(node.context, &attr, &dv);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(DestroyCq(ibv_cq_ex_to_cq(cq)), 0);
  dv.cqe_size = 96;
  EXPECT_EQ(DvCreateCq(node.context, &attr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
  dv.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_COMPRESSED_CQE;
  EXPECT_EQ(DvCreateCq(node.context, &attr, &dv), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace cq_ex_test
}  // namespace sluice::softdc
