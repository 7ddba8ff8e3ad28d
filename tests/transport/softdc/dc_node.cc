// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/dc_node.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "transport/softdc/device.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {
constexpr size_t kStageSlotBytes = 4096;

ibv_ah_attr LocalAh(ibv_context* context) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.hop_limit = 64;
  EXPECT_EQ(QueryGid(context, 1, 0, &attr.grh.dgid), 0);
  return attr;
}
}  // namespace

DcNode::DcNode(const DcNodeOptions& options) : options_(options) {
  context = OpenDevice(Device());
  EXPECT_NE(context, nullptr);
  pd = AllocPd(context);
  if (options.private_memory) {
    slab = static_cast<std::byte*>(
        mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  } else {
    slab_fd_ = memfd_create("test-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(slab_fd_, kSlabBytes), 0);
    EXPECT_EQ(fcntl(slab_fd_, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    slab = static_cast<std::byte*>(
        mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab_fd_, 0));
  }
  mr = RegMr(pd, slab, kSlabBytes, options.access);
  EXPECT_NE(mr, nullptr);
  if (options.channel) channel = CreateCompChannel(context);
  if (options.wc_flags == 0) {
    receive_cq = CreateCq(context, options.cqe, this, channel, 0);
  } else {
    ibv_cq_init_attr_ex cq_attr{};
    cq_attr.cqe = static_cast<uint32_t>(options.cqe);
    cq_attr.cq_context = this;
    cq_attr.channel = channel;
    cq_attr.wc_flags = options.wc_flags;
    receive_cq = ibv_cq_ex_to_cq(CreateCqEx(context, &cq_attr));
  }
  EXPECT_NE(receive_cq, nullptr);
  send_cq = options.one_cq ? receive_cq : CreateCq(context, options.cqe, nullptr, nullptr, 0);
  CreateQueue();
  dct = MakeDct(receive_cq, srq, options_.dc_key);
  EXPECT_NE(dct, nullptr);
  CreateDci();
  ibv_ah_attr ah_attr = LocalAh(context);
  ah = CreateAh(pd, &ah_attr);
  EXPECT_NE(ah, nullptr);
  PostReceives(options.receives);
}

DcNode::~DcNode() {
  EXPECT_EQ(DestroyAh(ah), 0);
  EXPECT_EQ(DestroyQp(dci), 0);
  DestroyTarget();
  EXPECT_EQ(DestroySrq(srq), 0);
  if (send_cq != receive_cq) {
    EXPECT_EQ(DestroyCq(send_cq), 0);
  }
  EXPECT_EQ(DestroyCq(receive_cq), 0);
  if (channel != nullptr) {
    EXPECT_EQ(DestroyCompChannel(channel), 0);
  }
  EXPECT_EQ(DeallocPd(pd), 0);
  EXPECT_EQ(CloseDevice(context), 0);
  munmap(slab, kSlabBytes);
  if (slab_fd_ >= 0) close(slab_fd_);
}

void DcNode::DestroyTarget() {
  if (dct == nullptr) return;
  EXPECT_EQ(DestroyQp(std::exchange(dct, nullptr)), 0);
  EXPECT_EQ(DeregMr(std::exchange(mr, nullptr)), 0);
}

void DcNode::CreateQueue() {
  ibv_srq_init_attr attr{};
  attr.attr = {.max_wr = 256, .max_sge = 2, .srq_limit = 0};
  srq = CreateSrq(pd, &attr);
  EXPECT_NE(srq, nullptr);
}

void DcNode::RenewTarget() {
  DestroyTarget();
  EXPECT_EQ(DestroySrq(srq), 0);
  CreateQueue();
  mr = RegMr(pd, slab, kSlabBytes, options_.access);
  EXPECT_NE(mr, nullptr);
  dct = MakeDct(receive_cq, srq, options_.dc_key);
  EXPECT_NE(dct, nullptr);
}

ibv_qp* DcNode::MakeDct(ibv_cq* cq, ibv_srq* target_srq, uint64_t dc_key) {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  attr.send_cq = attr.recv_cq = cq;
  attr.srq = target_srq;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = dc_key;
  ibv_qp* made = DvCreateQp(context, &attr, &dv);
  if (made == nullptr) return nullptr;
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  modify.qp_access_flags = options_.dct_access;
  EXPECT_EQ(
      ModifyQp(made, &modify, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS),
      0);
  modify.qp_state = IBV_QPS_RTR;
  modify.path_mtu = IBV_MTU_4096;
  modify.min_rnr_timer = options_.min_rnr_timer;
  modify.ah_attr = LocalAh(context);
  EXPECT_EQ(
      ModifyQp(made, &modify, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU),
      0);
  return made;
}

void DcNode::CreateDci() {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_cq = send_cq;
  attr.recv_cq = send_cq;
  attr.cap.max_send_wr = options_.send_wr;
  attr.cap.max_send_sge = 4;
  attr.cap.max_inline_data = 64;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_READ;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  if (options_.streams) {
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    dv.dc_init_attr.dci_streams = {.log_num_concurent = 3,
                                   .log_num_errored = options_.log_errored_streams};
  }
  dci = DvCreateQp(context, &attr, &dv);
  ASSERT_NE(dci, nullptr);
  dci_ex = QpToQpEx(dci);
  dci_dv = DvQpExFromIbvQpEx(dci_ex);
  ToReadyToSend();
}

void DcNode::ToReadyToSend() {
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  ASSERT_EQ(ModifyQp(dci, &modify, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX), 0);
  modify.qp_state = IBV_QPS_RTR;
  modify.path_mtu = IBV_MTU_4096;
  ASSERT_EQ(ModifyQp(dci, &modify, IBV_QP_STATE | IBV_QP_PATH_MTU), 0);
  modify.qp_state = IBV_QPS_RTS;
  modify.timeout = options_.timeout;
  modify.retry_cnt = options_.retry_count;
  modify.rnr_retry = options_.rnr_retry;
  modify.max_rd_atomic = 1;
  ASSERT_EQ(ModifyQp(dci, &modify,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN),
            0);
}

void DcNode::Recover() {
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ModifyQp(dci, &modify, IBV_QP_STATE), 0);
  ToReadyToSend();
}

DcAddress DcNode::Address() const {
  return {.dctn = dct->qp_num,
          .dc_key = options_.dc_key,
          .slab_address = reinterpret_cast<uint64_t>(slab),
          .rkey = mr->rkey};
}

void DcNode::PostReceives(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i, ++next_receive_) {
    const size_t offset = (next_receive_ % 256) * options_.receive_bytes;
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(slab + offset),
                .length = options_.receive_bytes,
                .lkey = mr->lkey};
    ibv_recv_wr wr{.wr_id = offset, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
}

std::byte* DcNode::StageText(const std::string& text) {
  std::byte* at = slab + kSendAreaOffset + (next_stage_++ % 64) * kStageSlotBytes;
  std::memcpy(at, text.data(), text.size());
  return at;
}

int DcNode::Send(const DcAddress& to, const std::string& text, uint64_t wr_id, uint16_t stream,
                 unsigned flags) {
  std::byte* at = StageText(text);
  ibv_wr_start(dci_ex);
  dci_ex->wr_id = wr_id;
  dci_ex->wr_flags = flags;
  ibv_wr_send(dci_ex);
  mlx5dv_wr_set_dc_addr_stream(dci_dv, ah, to.dctn, to.dc_key, stream);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(at),
                 static_cast<uint32_t>(text.size()));
  return ibv_wr_complete(dci_ex);
}

int DcNode::Write(const DcAddress& to, size_t slab_offset, const std::string& text, uint64_t wr_id,
                  uint16_t stream, uint32_t rkey) {
  std::byte* at = StageText(text);
  ibv_wr_start(dci_ex);
  dci_ex->wr_id = wr_id;
  dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write(dci_ex, rkey != 0 ? rkey : to.rkey, to.slab_address + slab_offset);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(at),
                 static_cast<uint32_t>(text.size()));
  mlx5dv_wr_set_dc_addr_stream(dci_dv, ah, to.dctn, to.dc_key, stream);
  return ibv_wr_complete(dci_ex);
}

int DcNode::WriteImm(const DcAddress& to, size_t slab_offset, const std::string& text, uint32_t imm,
                     uint64_t wr_id) {
  ibv_wr_start(dci_ex);
  dci_ex->wr_id = wr_id;
  dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_write_imm(dci_ex, to.rkey, to.slab_address + slab_offset, htonl(imm));
  ibv_wr_set_inline_data(dci_ex, const_cast<char*>(text.data()), text.size());
  mlx5dv_wr_set_dc_addr(dci_dv, ah, to.dctn, to.dc_key);
  return ibv_wr_complete(dci_ex);
}

int DcNode::Read(const DcAddress& from, size_t slab_offset, size_t length, size_t to_offset,
                 uint64_t wr_id, uint16_t stream) {
  ibv_wr_start(dci_ex);
  dci_ex->wr_id = wr_id;
  dci_ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_rdma_read(dci_ex, from.rkey, from.slab_address + slab_offset);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(slab + to_offset),
                 static_cast<uint32_t>(length));
  mlx5dv_wr_set_dc_addr_stream(dci_dv, ah, from.dctn, from.dc_key, stream);
  return ibv_wr_complete(dci_ex);
}

namespace {
ibv_wc PollOne(ibv_cq* cq) {
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
  }
  return wc;
}
}  // namespace

ibv_wc DcNode::PollSend() { return PollOne(send_cq); }
ibv_wc DcNode::PollReceive() { return PollOne(receive_cq); }

std::string DcNode::ReceivedText(const ibv_wc& wc) const {
  return std::string(reinterpret_cast<const char*>(slab + wc.wr_id), wc.byte_len);
}

}  // namespace sluice::softdc
