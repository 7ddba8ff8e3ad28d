// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/plain_node.h"

#include <sys/mman.h>

#include <cstring>

#include "gtest/gtest.h"
#include "transport/softdc/device.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr int kCqe = 256;
constexpr uint32_t kSendWr = 32;
constexpr uint32_t kSges = 4;
constexpr uint32_t kInlineBytes = 64;

ibv_ah_attr ToThisHost(ibv_context* context) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.hop_limit = 64;
  EXPECT_EQ(QueryGid(context, 1, 0, &attr.grh.dgid), 0);
  return attr;
}

}  // namespace

PlainNode::PlainNode(const PlainNodeOptions& options) : options_(options) {
  context = OpenDevice(Device());
  pd = AllocPd(context);
  send_cq = CreateCq(context, kCqe, nullptr, nullptr, 0);
  receive_cq = CreateCq(context, kCqe, nullptr, nullptr, 0);
  slab = static_cast<std::byte*>(
      mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mr = RegMr(pd, slab, kSlabBytes, static_cast<int>(options.mr_access));
  EXPECT_NE(mr, nullptr);
  if (options.srq) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    srq = CreateSrq(pd, &init);
  }
  ibv_qp_init_attr init{};
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.srq = srq;
  init.qp_type = options.type;
  init.cap = {.max_send_wr = kSendWr,
              .max_recv_wr = 64,
              .max_send_sge = kSges,
              .max_recv_sge = 1,
              .max_inline_data = kInlineBytes};
  qp = CreateQp(pd, &init);
  EXPECT_NE(qp, nullptr);
  ibv_ah_attr attr = ToThisHost(context);
  ah = CreateAh(pd, &attr);
  ToInit();
  for (uint64_t i = 0; i < options.receives; ++i) EXPECT_EQ(PostReceive(i), 0);
}

PlainNode::~PlainNode() {
  EXPECT_EQ(DestroyAh(ah), 0);
  EXPECT_EQ(DestroyQp(qp), 0);
  if (srq != nullptr) {
    EXPECT_EQ(DestroySrq(srq), 0);
  }
  EXPECT_EQ(DeregMr(mr), 0);
  EXPECT_EQ(DestroyCq(send_cq), 0);
  EXPECT_EQ(DestroyCq(receive_cq), 0);
  EXPECT_EQ(DeallocPd(pd), 0);
  EXPECT_EQ(CloseDevice(context), 0);
  munmap(slab, kSlabBytes);
}

void PlainNode::ToInit() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = options_.access;
  attr.qkey = options_.qkey;
  const int last = options_.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ModifyQp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
}

void PlainNode::ToReady(uint32_t peer) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = options_.min_rnr_timer;
  attr.ah_attr = ToThisHost(context);
  int mask = IBV_QP_STATE;
  if (options_.type != IBV_QPT_UD) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (options_.type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ASSERT_EQ(ModifyQp(qp, &attr, mask), 0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = options_.timeout;
  attr.retry_cnt = options_.retry_count;
  attr.rnr_retry = options_.rnr_retry;
  attr.max_rd_atomic = 4;
  mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (options_.type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  ASSERT_EQ(ModifyQp(qp, &attr, mask), 0);
}

int PlainNode::ToState(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ModifyQp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state PlainNode::State() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(QueryQp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

int PlainNode::PostReceive(uint64_t wr_id) {
  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(Buffer(wr_id)),
              .length = options_.receive_bytes,
              .lkey = mr->lkey};
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

ibv_send_wr PlainNode::Wr(ibv_wr_opcode opcode, size_t offset, uint32_t length) {
  sge_ = {.addr = Address(offset), .length = length, .lkey = mr->lkey};
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.sg_list = &sge_;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

int PlainNode::Post(ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int PlainNode::Send(const std::string& text, uint64_t wr_id, unsigned flags) {
  const size_t offset = kSendArea + (wr_id % 64) * 1024;
  std::memcpy(slab + offset, text.data(), text.size());
  ibv_send_wr wr = Wr(IBV_WR_SEND, offset, static_cast<uint32_t>(text.size()));
  wr.wr_id = wr_id;
  wr.send_flags = flags;
  return Post(wr);
}

ibv_wc PlainNode::Poll(ibv_cq* cq) {
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return wc;
}

}  // namespace sluice::softdc
