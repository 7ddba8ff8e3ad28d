// SPDX-License-Identifier: Apache-2.0
//
// Receives of a connected queue pair that nobody will ever fill.
#include <gtest/gtest.h>
#include <poll.h>

#include "transport/softdc/verbs.h"

namespace sluice::softdc {
namespace qp_flush_test {

constexpr int kInitMask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;

class QpFlushTest : public ::testing::TestWithParam<ibv_qp_type> {
 protected:
  void SetUp() override {
    list_ = api_.get_device_list(nullptr);
    context_ = api_.open_device(list_[0]);
    ASSERT_NE(context_, nullptr);
    pd_ = api_.alloc_pd(context_);
    channel_ = api_.create_comp_channel(context_);
    cq_ = api_.create_cq(context_, 16, nullptr, channel_, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {.max_send_wr = 4,
                .max_recv_wr = 4,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = 0};
    init.qp_type = GetParam();
    qp_ = api_.create_qp(pd_, &init);
    ASSERT_NE(qp_, nullptr);
    mr_ = api_.reg_mr(pd_, bytes_, sizeof(bytes_), IBV_ACCESS_LOCAL_WRITE);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(api_.modify_qp(qp_, &attr, kInitMask), 0);
  }
  void TearDown() override {
    EXPECT_EQ(api_.destroy_qp(qp_), 0);
    EXPECT_EQ(api_.dereg_mr(mr_), 0);
    EXPECT_EQ(api_.destroy_cq(cq_), 0);
    EXPECT_EQ(api_.destroy_comp_channel(channel_), 0);
    EXPECT_EQ(api_.dealloc_pd(pd_), 0);
    EXPECT_EQ(api_.close_device(context_), 0);
    api_.free_device_list(list_);
  }
  int PostReceive(uint64_t wr_id) {
    ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(bytes_), .length = 8, .lkey = mr_->lkey};
    ibv_recv_wr wr = {.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(qp_, &wr, &bad);
  }
  int ToError() {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    return api_.modify_qp(qp_, &attr, IBV_QP_STATE);
  }
  void ExpectFlushed(uint64_t wr_id) {
    ibv_wc wc{};
    ASSERT_EQ(ibv_poll_cq(cq_, 1, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.qp_num, qp_->qp_num);
  }

  const verbs::VerbsApi& api_ = Verbs();
  ibv_device** list_ = nullptr;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_comp_channel* channel_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
  ibv_mr* mr_ = nullptr;
  char bytes_[8];
};

TEST_P(QpFlushTest, MoveToErrorFlushesPostedReceivesInOrderAndWakesTheChannel) {
  ASSERT_EQ(PostReceive(7), 0);
  ASSERT_EQ(PostReceive(8), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq_, 0), 0);
  ASSERT_EQ(ToError(), 0);
  pollfd ready = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&ready, 1, 0), 1);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(api_.get_cq_event(channel_, &cq, &cq_context), 0);
  api_.ack_cq_events(cq, 1);
  ExpectFlushed(7);
  ExpectFlushed(8);
}

TEST_P(QpFlushTest, ReceivePostedInErrorIsFlushedAtOnce) {
  ASSERT_EQ(ToError(), 0);
  ASSERT_EQ(PostReceive(9), 0);
  ExpectFlushed(9);
}

INSTANTIATE_TEST_SUITE_P(Types, QpFlushTest, ::testing::Values(IBV_QPT_RC, IBV_QPT_UC));

}  // namespace qp_flush_test
}  // namespace sluice::softdc
