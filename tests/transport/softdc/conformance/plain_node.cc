// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/plain_node.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "gtest/gtest.h"

namespace sluice::conformance {
namespace {

constexpr int kCqe = 256;
constexpr uint8_t kPort = 1;
constexpr uint8_t kReads = 4;

template <typename T>
T* Made(T* object, const char* what) {
  if (object == nullptr) {
    throw std::runtime_error(std::string(what) + " failed: " + std::strerror(errno));
  }
  return object;
}

void Done(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::strerror(result));
}

uint64_t OperationsOf(ibv_qp_type type) {
  uint64_t operations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  if (type != IBV_QPT_UD) {
    operations |= IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_WRITE |
                  IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_BIND_MW;
  }
  if (type == IBV_QPT_RC) {
    operations |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV;
  }
  return operations;
}

}  // namespace

PlainNode::PlainNode(Bed& bed, const PlainOptions& options)
    : bed(bed), api(bed.api()), options(options) {
  context = Made(bed.Open(options.host), "opening the device");
  fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
  pd = Made(api.alloc_pd(context), "alloc_pd");
  send_cq = Made(api.create_cq(context, kCqe, nullptr, nullptr, 0), "create_cq");
  receive_cq = Made(api.create_cq(context, kCqe, nullptr, nullptr, 0), "create_cq");
  void* at = mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap failed");
  slab = static_cast<std::byte*>(at);
  mr = Made(api.reg_mr(pd, slab, kSlabBytes, static_cast<int>(options.mr_access)), "reg_mr");
  if (options.srq) {
    ibv_srq_init_attr init{};
    init.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
    srq = Made(api.create_srq(pd, &init), "create_srq");
  }
  MakeQueuePair();
  ToInit();
  for (uint64_t i = 0; i < options.receives; ++i) Done(PostReceive(i), "posting a receive");
}

PlainNode::~PlainNode() {
  if (ah != nullptr) {
    EXPECT_EQ(api.destroy_ah(ah), 0);
  }
  if (qp != nullptr) {
    EXPECT_EQ(api.destroy_qp(qp), 0);
  }
  if (srq != nullptr) {
    EXPECT_EQ(api.destroy_srq(srq), 0);
  }
  EXPECT_EQ(api.dereg_mr(mr), 0);
  EXPECT_EQ(api.destroy_cq(send_cq), 0);
  EXPECT_EQ(api.destroy_cq(receive_cq), 0);
  EXPECT_EQ(api.dealloc_pd(pd), 0);
  EXPECT_EQ(api.close_device(context), 0);
  munmap(slab, kSlabBytes);
}

void PlainNode::MakeQueuePair() {
  ibv_qp_init_attr_ex init{};
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.qp_type = options.type;
  init.pd = pd;
  init.send_cq = send_cq;
  init.recv_cq = receive_cq;
  init.srq = srq;
  init.cap = {.max_send_wr = options.send_wr,
              .max_recv_wr = srq == nullptr ? 64u : 0u,
              .max_send_sge = 4,
              .max_recv_sge = srq == nullptr ? 1u : 0u,
              .max_inline_data = options.inline_bytes};
  init.send_ops_flags = OperationsOf(options.type);
  mlx5dv_qp_init_attr dv_init{};
  if (options.mkey_ops != 0) {
    dv_init.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv_init.send_ops_flags = options.mkey_ops;
  }
  if (options.pipelining) {
    dv_init.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
    dv_init.create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING;
  }
  // A device of another vendor has the queue pair too, unless something is asked for that is mlx5's own.
  const bool mlx5 = api.dv_is_supported(context->device);
  qp = Made(mlx5 || dv_init.comp_mask != 0 ? api.dv_create_qp(context, &init, &dv_init)
                                           : CreateQpEx(context, &init),
            "creating the queue pair");
  ex = Made(api.qp_to_qp_ex(qp), "qp_to_qp_ex");
  if (mlx5) dv = Made(api.dv_qp_ex_from_ibv_qp_ex(ex), "qp_ex_from_ibv_qp_ex");
}

ibv_ah_attr PlainNode::Path() const {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = kPort;
  attr.grh.hop_limit = 64;
  Done(api.query_gid(context, kPort, 0, &attr.grh.dgid), "query_gid");
  return attr;
}

void PlainNode::ToInit() {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = kPort;
  attr.qp_access_flags = options.access;
  attr.qkey = kQkey;
  const int last = options.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  Done(api.modify_qp(qp, &attr, (kRcInit & ~IBV_QP_ACCESS_FLAGS) | last), "to INIT");
}

ibv_qp_attr PlainNode::AttributesTo(const PlainNode& peer) const {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer.qp->qp_num;
  attr.max_dest_rd_atomic = kReads;
  attr.min_rnr_timer = options.min_rnr_timer;
  attr.ah_attr = peer.Path();
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_count;
  attr.rnr_retry = options.rnr_retry;
  attr.max_rd_atomic = kReads;
  return attr;
}

void PlainNode::ConnectTo(const PlainNode& peer) {
  ibv_qp_attr attr = AttributesTo(peer);
  constexpr int kOfRcOnly = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  const int to_rtr = options.type == IBV_QPT_RC   ? kRcRtr
                     : options.type == IBV_QPT_UC ? kRcRtr & ~kOfRcOnly
                                                  : int{IBV_QP_STATE};
  Done(api.modify_qp(qp, &attr, to_rtr), "to RTR");
  attr.qp_state = IBV_QPS_RTS;
  const int to_rts = options.type == IBV_QPT_RC ? kRcRts : IBV_QP_STATE | IBV_QP_SQ_PSN;
  Done(api.modify_qp(qp, &attr, to_rts), "to RTS");
  if (options.type != IBV_QPT_UD) return;
  ibv_ah_attr path = peer.Path();
  ah = Made(api.create_ah(pd, &path), "create_ah");
}

int PlainNode::ToState(ibv_qp_state state) {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return api.modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state PlainNode::State() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  Done(api.query_qp(qp, &attr, IBV_QP_STATE, &init), "query_qp");
  return attr.qp_state;
}

int PlainNode::PostReceive(uint64_t wr_id) {
  ibv_sge sge = Piece(wr_id * options.receive_bytes, options.receive_bytes);
  ibv_recv_wr wr{.wr_id = wr_id, .next = nullptr, .sg_list = &sge, .num_sge = 1};
  ibv_recv_wr* bad = nullptr;
  return srq != nullptr ? ibv_post_srq_recv(srq, &wr, &bad) : ibv_post_recv(qp, &wr, &bad);
}

ibv_sge PlainNode::Piece(size_t offset, uint32_t length) const {
  return {.addr = Address(offset), .length = length, .lkey = mr->lkey};
}

ibv_send_wr PlainNode::Wr(ibv_wr_opcode opcode, size_t offset, uint32_t length) {
  sge_ = Piece(offset, length);
  ibv_send_wr wr{};
  wr.opcode = opcode;
  wr.sg_list = &sge_;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  return wr;
}

ibv_send_wr PlainNode::WrTo(const PlainNode& peer, size_t remote_offset, ibv_wr_opcode opcode,
                            size_t offset, uint32_t length) {
  ibv_send_wr wr = Wr(opcode, offset, length);
  if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.remote_addr = peer.Address(remote_offset);
    wr.wr.atomic.rkey = peer.mr->rkey;
  } else {
    wr.wr.rdma = {.remote_addr = peer.Address(remote_offset), .rkey = peer.mr->rkey};
  }
  return wr;
}

int PlainNode::Post(ibv_send_wr wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &wr, &bad);
}

int PlainNode::Send(const std::string& text, uint64_t wr_id, unsigned flags) {
  const size_t offset = kFreeOffset + (wr_id % 64) * 512;
  Fill(offset, text);
  ibv_send_wr wr = Wr(IBV_WR_SEND, offset, static_cast<uint32_t>(text.size()));
  wr.wr_id = wr_id;
  wr.send_flags = flags;
  return Post(wr);
}

int PlainNode::SendDatagram(const PlainNode& to, const std::string& text, uint64_t wr_id,
                            uint32_t qkey) {
  return SendDatagramTo(to.qp->qp_num, text, wr_id, qkey);
}

int PlainNode::SendDatagramTo(uint32_t number, const std::string& text, uint64_t wr_id,
                              uint32_t qkey) {
  const size_t offset = kFreeOffset + (wr_id % 64) * 512;
  Fill(offset, text);
  ibv_send_wr wr = Wr(IBV_WR_SEND, offset, static_cast<uint32_t>(text.size()));
  wr.wr_id = wr_id;
  wr.wr.ud = {.ah = ah, .remote_qpn = number, .remote_qkey = qkey};
  return Post(wr);
}

ibv_wc PlainNode::Await(ibv_cq* cq) {
  ibv_wc wc{};
  bed.Await("a completion", [&] {
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count < 0) throw std::runtime_error("poll_cq failed");
    return count == 1;
  });
  return wc;
}

bool PlainNode::NoCompletion(ibv_cq* cq) {
  ibv_wc wc{};
  return ibv_poll_cq(cq, 1, &wc) == 0;
}

ibv_async_event PlainNode::AwaitAsync() {
  ibv_async_event event{};
  bed.Await("an async event", [&] { return api.get_async_event(context, &event) == 0; });
  return event;
}

std::string PlainNode::Text(size_t offset, size_t length) const {
  return {reinterpret_cast<const char*>(slab + offset), length};
}

std::string PlainNode::Received(const ibv_wc& wc, size_t skip) const {
  return Text(wc.wr_id * options.receive_bytes + skip, wc.byte_len - skip);
}

void PlainNode::Fill(size_t offset, const std::string& text) {
  std::memcpy(slab + offset, text.data(), text.size());
}

}  // namespace sluice::conformance
