// SPDX-License-Identifier: Apache-2.0
//
// Memory windows of type 1.
#include <infiniband/verbs.h>

#include <cerrno>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mr_bind_test {

// Bound by ibv_bind_mw, again and again without an invalidation, and used through any queue pair.
TEST(MrBind, EachBindGivesANewKeyAndTheLastOneWorks) {
  PlainNodeOptions options;
  options.mr_access |= IBV_ACCESS_MW_BIND;
  PlainPair pair(options);
  ibv_mw* window = AllocMw(pair.b.pd, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr);
  const auto bind = [&](uint64_t length, unsigned access) {
    ibv_mw_bind request{};
    request.wr_id = 7;
    request.send_flags = IBV_SEND_SIGNALED;
    request.bind_info = {.mr = pair.b.mr,
                         .addr = pair.b.Address(PlainNode::kSendArea),
                         .length = length,
                         .mw_access_flags = access};
    EXPECT_EQ(ibv_bind_mw(pair.b.qp, window, &request), 0);
    const ibv_wc wc = pair.b.PollSend();
    EXPECT_EQ(wc.wr_id, 7u);
    EXPECT_EQ(wc.opcode, IBV_WC_BIND_MW);
    return wc.status;
  };
  const auto write = [&](uint32_t key) {
    ibv_send_wr wr = pair.a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 8);
    wr.wr.rdma = {.remote_addr = pair.b.Address(PlainNode::kSendArea), .rkey = key};
    EXPECT_EQ(pair.a.Post(wr), 0);
    return pair.a.PollSend().status;
  };
  ASSERT_EQ(bind(64, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS);
  const uint32_t first = window->rkey;
  ASSERT_EQ(bind(64, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
  EXPECT_NE(window->rkey, first);
  EXPECT_EQ(write(window->rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(bind(0, 0), IBV_WC_SUCCESS);
  EXPECT_EQ(write(window->rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(DeallocMw(window), 0);
}

TEST(MrBind, InputThatIsWrong) {
  PlainNode node;
  ibv_mw* one = AllocMw(node.pd, IBV_MW_TYPE_1);
  ibv_mw* two = AllocMw(node.pd, IBV_MW_TYPE_2);
  const uint32_t key = one->rkey;
  ibv_mw_bind request{};
  request.bind_info.length = 8;  // of no region
  EXPECT_EQ(ibv_bind_mw(node.qp, one, &request), EINVAL);
  request.bind_info.mr = node.mr;
  EXPECT_EQ(ibv_bind_mw(node.qp, two, &request), EINVAL);
  ibv_pd* pd = AllocPd(node.context);
  ibv_pd* const own = node.mr->pd;
  node.mr->pd = pd;
  EXPECT_EQ(ibv_bind_mw(node.qp, one, &request), EPERM);
  node.mr->pd = own;
  EXPECT_EQ(one->rkey, key);
  EXPECT_EQ(DeallocPd(pd), 0);
  EXPECT_EQ(DeallocMw(one), 0);
  EXPECT_EQ(DeallocMw(two), 0);
}

}  // namespace mr_bind_test
}  // namespace sluice::softdc
