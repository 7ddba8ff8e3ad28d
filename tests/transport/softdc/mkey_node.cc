// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/mkey_node.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transport/softdc/signature/reference_signature.h"
#include "transport/softdc/device.h"
#include "transport/softdc/verbs_mkey.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {
constexpr uint32_t kReceives = 16;
}  // namespace

MkeyNode::MkeyNode(const MkeyNodeOptions& options) : slab(kSlabBytes) {
  context = OpenDevice(Device());
  EXPECT_NE(context, nullptr);
  pd = AllocPd(context);
  send_cq = CreateCq(context, 256, nullptr, nullptr, 0);
  receive_cq = CreateCq(context, 256, nullptr, nullptr, 0);
  mr = RegMr(pd, slab.data(), slab.size(),
             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_NE(mr, nullptr);

  ibv_qp_init_attr_ex init{};
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.cap = {.max_send_wr = options.send_wr,
              .max_recv_wr = kReceives,
              .max_send_sge = 4,
              .max_recv_sge = 2,
              .max_inline_data = options.max_inline_bytes};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = options.signal_all ? 1 : 0;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_LOCAL_INV;
  mlx5dv_qp_init_attr dv_init{};
  dv_init.comp_mask =
      MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  dv_init.send_ops_flags = options.mkey_ops;
  dv_init.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  if (options.pipelining) dv_init.create_flags |= MLX5DV_QP_CREATE_SIG_PIPELINING;
  qp = DvCreateQp(context, &init, &dv_init);
  EXPECT_NE(qp, nullptr);
  ex = QpToQpEx(qp);
  dv = DvQpExFromIbvQpEx(ex);
}

MkeyNode::~MkeyNode() {
  EXPECT_EQ(DestroyQp(qp), 0);
  for (mlx5dv_mkey* key : keys_) EXPECT_EQ(DvDestroyMkey(key), 0);
  EXPECT_EQ(DeregMr(mr), 0);
  EXPECT_EQ(DestroyCq(send_cq), 0);
  EXPECT_EQ(DestroyCq(receive_cq), 0);
  EXPECT_EQ(DeallocPd(pd), 0);
  EXPECT_EQ(CloseDevice(context), 0);
}

MkeyAddress MkeyNode::Address() const {
  return {.qp_number = qp->qp_num,
          .slab_address = reinterpret_cast<uint64_t>(slab.data()),
          .rkey = mr->rkey};
}

void MkeyNode::Connect(uint32_t peer_qp_number) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  ASSERT_EQ(
      ModifyQp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), 0);
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_4096;
  attr.dest_qp_num = peer_qp_number;
  attr.max_dest_rd_atomic = 1;
  attr.min_rnr_timer = 1;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.hop_limit = 64;
  ASSERT_EQ(QueryGid(context, 1, 0, &attr.ah_attr.grh.dgid), 0);
  ASSERT_EQ(ModifyQp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 1;
  ASSERT_EQ(ModifyQp(qp, &attr,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC),
            0);
}

void MkeyNode::Connect(MkeyNode& a, MkeyNode& b) {
  a.Connect(b.qp->qp_num);
  b.Connect(a.qp->qp_num);
}

mlx5dv_mkey* MkeyNode::CreateKey(bool signature, uint16_t max_entries) {
  mlx5dv_mkey_init_attr init{
      .pd = pd,
      .create_flags = uint32_t{MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT} |
                      (signature ? uint32_t{MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE} : 0),
      .max_entries = max_entries};
  mlx5dv_mkey* key = DvCreateMkey(&init);
  EXPECT_NE(key, nullptr);
  keys_.push_back(key);
  return key;
}

ibv_sge MkeyNode::Piece(size_t offset, uint32_t length) const {
  return {
      .addr = reinterpret_cast<uint64_t>(slab.data()) + offset, .length = length, .lkey = mr->lkey};
}

int MkeyNode::Configure(mlx5dv_mkey* key, std::vector<ibv_sge> layout,
                        std::optional<mlx5dv_sig_block_attr> signature, uint32_t access) {
  ibv_wr_start(ex);
  ex->wr_id = 0xc0;
  ex->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  mlx5dv_mkey_conf_attr conf{};
  mlx5dv_wr_mkey_configure(dv, key, signature ? 3 : 2, &conf);
  mlx5dv_wr_set_mkey_access_flags(dv, access);
  mlx5dv_wr_set_mkey_layout_list(dv, static_cast<uint16_t>(layout.size()), layout.data());
  if (signature) mlx5dv_wr_set_mkey_sig_block(dv, &*signature);
  const int error = ibv_wr_complete(ex);
  if (error == 0) {
    const ibv_wc wc = Poll();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_DRIVER1);
  }
  return error;
}

int MkeyNode::Send(const ibv_sge& sge, uint64_t wr_id, unsigned flags) {
  ibv_wr_start(ex);
  ex->wr_id = wr_id;
  ex->wr_flags = flags;
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
  return ibv_wr_complete(ex);
}

int MkeyNode::Write(const ibv_sge& sge, uint32_t rkey, uint64_t remote_address, uint64_t wr_id,
                    unsigned flags) {
  ibv_wr_start(ex);
  ex->wr_id = wr_id;
  ex->wr_flags = flags;
  ibv_wr_rdma_write(ex, rkey, remote_address);
  ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
  return ibv_wr_complete(ex);
}

int MkeyNode::Read(const ibv_sge& sge, uint32_t rkey, uint64_t remote_address, uint64_t wr_id,
                   unsigned flags) {
  ibv_wr_start(ex);
  ex->wr_id = wr_id;
  ex->wr_flags = flags;
  ibv_wr_rdma_read(ex, rkey, remote_address);
  ibv_wr_set_sge(ex, sge.lkey, sge.addr, sge.length);
  return ibv_wr_complete(ex);
}

void MkeyNode::Receive(const ibv_sge& sge, uint64_t wr_id) {
  ibv_sge piece = sge;
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &piece, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
}

ibv_wc MkeyNode::PollOf(ibv_cq* cq) {
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return wc;
}

bool MkeyNode::Quiet() {
  ibv_wc wc{};
  return ibv_poll_cq(send_cq, 1, &wc) == 0 && ibv_poll_cq(receive_cq, 1, &wc) == 0;
}

mlx5dv_mkey_err MkeyNode::Check(mlx5dv_mkey* key) {
  mlx5dv_mkey_err error{};
  EXPECT_EQ(DvMkeyCheck(key, &error), 0);
  return error;
}

ibv_qp_state MkeyNode::State() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(QueryQp(qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, attr.cur_qp_state);
  return attr.qp_state;
}

ibv_event_type MkeyNode::Event() {
  ibv_async_event event{};
  EXPECT_EQ(GetAsyncEvent(context, &event), 0);
  const ibv_event_type type = event.event_type;
  EXPECT_EQ(event.element.qp, qp);
  AckAsyncEvent(&event);
  return type;
}

int MkeyNode::ToReadyToSend() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_SQD;
  return ModifyQp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE);
}

CrcSignature::CrcSignature(bool on_wire, uint8_t check_mask) {
  domain.sig_type = MLX5DV_SIG_TYPE_CRC;
  domain.sig.crc = &crc;
  domain.block_size = MLX5DV_BLOCK_SIZE_512;
  (on_wire ? attr.wire : attr.mem) = &domain;
  attr.check_mask = check_mask;
}

std::vector<std::byte> WithCrc(std::span<const std::byte> data) {
  return signature::SlowProtect({.kind = signature::Kind::kCrc32c, .seed = UINT32_MAX},
                                {data.begin(), data.end()});
}

}  // namespace sluice::softdc
