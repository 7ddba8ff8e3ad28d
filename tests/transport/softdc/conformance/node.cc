// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/node.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "gtest/gtest.h"
#include "tests/transport/softdc/conformance/skip.h"

namespace sluice::conformance {
namespace {

constexpr size_t kStageSlotBytes = 4096;
constexpr size_t kStageSlots = (Node::kSlabBytes - Node::kStageOffset) / kStageSlotBytes;
constexpr uint8_t kPort = 1;

// Nodes whose queue pairs are stand-ins, by the number of their `dct`.
std::map<uint32_t, Node*>& StandIns() {
  static std::map<uint32_t, Node*> nodes;
  return nodes;
}

// What RC has to know of a peer more than a DCT.
constexpr int kOfAPeer = IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

// Made by this node's own calls, which have to work before anything can be judged.
template <typename T>
T* Made(T* object, const char* what) {
  if (object == nullptr) {
    throw std::runtime_error(std::string(what) + " failed: " + std::strerror(errno));
  }
  return object;
}

void Done(int result, const char* what) {
  if (result != 0)
    throw std::runtime_error(std::string(what) + " failed: " + std::to_string(result));
}

}  // namespace

Node::Node(Bed& bed, const NodeOptions& options) : bed(bed), api(bed.api()), options(options) {
  context = Made(bed.Open(options.host), "opening the device");
  pd = Made(api.alloc_pd(context), "alloc_pd");
  MakeSlab();
  mr = Made(api.reg_mr(pd, slab, kSlabBytes, options.mr_access), "reg_mr");
  send_cq = Made(api.create_cq(context, options.cqe, nullptr, nullptr, 0), "create_cq");
  if (options.channel) channel = Made(api.create_comp_channel(context), "create_comp_channel");
  MakeReceiveCq();
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {.max_wr = options.srq_wr, .max_sge = 2, .srq_limit = 0};
  srq = Made(api.create_srq(pd, &srq_attr), "create_srq");
  has_dc_ = bed.IsMlx5();
  if (has_dc_) {
    MakeDct();
    MakeDci();
  } else {
    MakeStandIns();
  }
  PostReceives(options.receives);
}

Node::~Node() {
  std::erase_if(StandIns(), [this](const auto& entry) { return entry.second == this; });
  for (const auto& [to, ah] : ahs_) EXPECT_EQ(api.destroy_ah(ah), 0);
  if (dci != nullptr) {
    EXPECT_EQ(api.destroy_qp(dci), 0);
  }
  if (dct != nullptr) {
    EXPECT_EQ(api.destroy_qp(dct), 0);
  }
  if (srq != nullptr) {
    EXPECT_EQ(api.destroy_srq(srq), 0);
  }
  EXPECT_EQ(api.destroy_cq(send_cq), 0);
  EXPECT_EQ(api.destroy_cq(receive_cq), 0);
  if (channel != nullptr) {
    EXPECT_EQ(api.destroy_comp_channel(channel), 0);
  }
  EXPECT_EQ(api.dereg_mr(mr), 0);
  EXPECT_EQ(api.dealloc_pd(pd), 0);
  EXPECT_EQ(api.close_device(context), 0);
  munmap(slab, kSlabBytes);
  close(slab_fd_);
}

void Node::MakeSlab() {
  slab_fd_ = memfd_create("conformance-slab", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  Done(ftruncate(slab_fd_, kSlabBytes), "ftruncate");
  Done(fcntl(slab_fd_, F_ADD_SEALS, F_SEAL_SHRINK), "sealing");
  void* at = mmap(nullptr, kSlabBytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab_fd_, 0);
  if (at == MAP_FAILED) throw std::runtime_error("mmap failed");
  slab = static_cast<std::byte*>(at);
}

void Node::MakeReceiveCq() {
  if (options.wc_flags == 0) {
    receive_cq = Made(api.create_cq(context, options.cqe, this, channel, 0), "create_cq");
    return;
  }
  ibv_cq_init_attr_ex attr{};
  attr.cqe = static_cast<uint32_t>(options.cqe);
  attr.cq_context = this;
  attr.channel = channel;
  attr.wc_flags = options.wc_flags;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = options.cq_flags;
  ibv_cq_ex* const made = ibv_create_cq_ex(context, &attr);
  if (made == nullptr && errno == EOPNOTSUPP && !bed.IsMlx5()) {
    SkipTest("the device's completion queues do not report these fields");
  }
  receive_cq = ibv_cq_ex_to_cq(Made(made, "create_cq_ex"));
}

Node::Creation Node::DctCreation() const {
  Creation creation;
  creation.attr.qp_type = IBV_QPT_DRIVER;
  creation.attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  creation.attr.pd = pd;
  creation.attr.send_cq = receive_cq;
  creation.attr.recv_cq = receive_cq;
  creation.attr.srq = srq;
  creation.dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  creation.dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  creation.dv.dc_init_attr.dct_access_key = options.dc_key;
  return creation;
}

Node::Creation Node::DciCreation() const {
  Creation creation;
  creation.attr.qp_type = IBV_QPT_DRIVER;
  creation.attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  creation.attr.pd = pd;
  creation.attr.send_cq = send_cq;
  creation.attr.recv_cq = send_cq;
  creation.attr.sq_sig_all = options.signal_all ? 1 : 0;
  creation.attr.cap.max_send_wr = options.send_wr;
  creation.attr.cap.max_send_sge = 4;
  creation.attr.cap.max_inline_data = options.inline_bytes;
  creation.attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                 IBV_QP_EX_WITH_RDMA_READ;
  creation.dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  creation.dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  // No more than the device has: much firmware bears no errored stream, and most tests are not about that.
  mlx5dv_context caps{};
  caps.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS;
  if (options.streams && api.dv_query_device(context, &caps) == 0 &&
      (caps.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0) {
    creation.dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    creation.dv.dc_init_attr.dci_streams = {
        .log_num_concurent =
            std::min(options.log_concurrent_streams, caps.dci_streams_caps.max_log_num_concurent),
        .log_num_errored =
            std::min(options.log_errored_streams, caps.dci_streams_caps.max_log_num_errored)};
  }
  return creation;
}

ibv_qp* Node::Create(Creation& creation) {
  if (!has_dc_) SkipTest("the device has no DC");
  errno = 0;
  return api.dv_create_qp(context, &creation.attr, &creation.dv);
}

void Node::MakeDct() {
  Creation creation = DctCreation();
  dct = Made(Create(creation), "creating a DCT");
  Done(Modify(dct, IBV_QPS_INIT, kDctInit), "DCT to INIT");
  Done(Modify(dct, IBV_QPS_RTR, kDctRtr), "DCT to RTR");
}

void Node::MakeDci() {
  Creation creation = DciCreation();
  dci = Made(Create(creation), "creating a DCI");
  dci_ex = Made(api.qp_to_qp_ex(dci), "qp_to_qp_ex");
  dci_dv = Made(api.dv_qp_ex_from_ibv_qp_ex(dci_ex), "qp_ex_from_ibv_qp_ex");
  ToReadyToSend();
}

void Node::MakeStandIns() {
  ibv_qp_init_attr_ex init = DciCreation().attr;
  init.qp_type = IBV_QPT_RC;
  init.cap.max_recv_wr = init.cap.max_recv_sge = 1;
  // A DCI has them all, whatever was asked for.
  init.send_ops_flags |= IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                         IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                         IBV_QP_EX_WITH_BIND_MW;
  dci = Made(CreateQpEx(context, &init), "creating a queue pair");
  dci_ex = Made(api.qp_to_qp_ex(dci), "qp_to_qp_ex");
  address_setter_.node = this;
  address_setter_.wr_set_dc_addr = [](mlx5dv_qp_ex* qp, ibv_ah*, uint32_t dctn, uint64_t key) {
    static_cast<AddressSetter*>(qp)->node->Meet(dctn, key, /*stream=*/0);
  };
  address_setter_.wr_set_dc_addr_stream = [](mlx5dv_qp_ex* qp, ibv_ah*, uint32_t dctn, uint64_t key,
                                             uint16_t stream) {
    static_cast<AddressSetter*>(qp)->node->Meet(dctn, key, stream);
  };
  dci_dv = &address_setter_;
  ibv_qp_init_attr target{};
  target.qp_type = IBV_QPT_RC;
  target.send_cq = target.recv_cq = receive_cq;
  target.srq = srq;
  target.cap = {.max_send_wr = 1,
                .max_recv_wr = 0,
                .max_send_sge = 1,
                .max_recv_sge = 0,
                .max_inline_data = 0};
  dct = Made(api.create_qp(pd, &target), "creating a queue pair");
  StandIns()[dct->qp_num] = this;
}

void Node::Meet(uint32_t dctn, uint64_t dc_key, uint16_t stream) {
  if (stream != std::exchange(stream_, stream) && peer_ != nullptr &&
      QueryState(dci) != IBV_QPS_RTS) {
    SkipTest("the device has no DC: no other stream goes on after an error");
  }
  if (peer_ != nullptr && peer_number_ == dctn && dc_key == kDcKey) return;
  const auto found = StandIns().find(dctn);
  if (found == StandIns().end())
    SkipTest("the device has no DC: no number but a node's is reached");
  Node& peer = *found->second;
  if (dc_key != peer.options.dc_key) SkipTest("the device has no DC: no key is checked");
  if (peer_ != nullptr || peer.heard_ != nullptr) {
    SkipTest("the device has no DC: one queue pair, one peer");
  }
  peer_ = &peer;
  peer_number_ = dctn;
  peer_->Listen(*this);
  Speak();  // without a RESET: a batch is being built
}

// `dct` to RTR, as the peer of the other's `dci`.
void Node::Listen(const Node& from) {
  heard_ = &from;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RESET;
  Done(api.modify_qp(dct, &attr, IBV_QP_STATE), "to RESET");
  attr = AttributesFor(IBV_QPS_INIT);
  Done(api.modify_qp(dct, &attr, kDctInit), "to INIT");
  attr = AttributesFor(IBV_QPS_RTR);
  attr.ah_attr = from.Path();
  attr.dest_qp_num = from.dci->qp_num;
  attr.max_dest_rd_atomic = 1;
  Done(api.modify_qp(dct, &attr, kDctRtr | kOfAPeer | IBV_QP_MAX_DEST_RD_ATOMIC), "to RTR");
}

// `dci` to RTS.
void Node::Speak() {
  ibv_qp_attr attr = AttributesFor(IBV_QPS_INIT);
  Done(api.modify_qp(dci, &attr, kDctInit), "to INIT");
  attr = AttributesFor(IBV_QPS_RTR);
  attr.ah_attr = peer_->Path();
  attr.dest_qp_num = peer_->dct->qp_num;
  attr.max_dest_rd_atomic = 1;
  Done(api.modify_qp(dci, &attr, kDctRtr | kOfAPeer | IBV_QP_MAX_DEST_RD_ATOMIC), "to RTR");
  attr = AttributesFor(IBV_QPS_RTS);
  Done(api.modify_qp(dci, &attr, kDciRts), "to RTS");
}

ibv_qp_attr Node::AttributesFor(ibv_qp_state state) const {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  attr.cur_qp_state = IBV_QPS_RTS;
  attr.port_num = kPort;
  attr.qp_access_flags = options.dct_access;
  attr.path_mtu = options.path_mtu;
  attr.ah_attr = Path();
  attr.min_rnr_timer = options.min_rnr_timer;
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_count;
  attr.rnr_retry = options.rnr_retry;
  attr.max_rd_atomic = 1;
  return attr;
}

int Node::Modify(ibv_qp* qp, ibv_qp_state state, int mask) {
  if (StandsIn(qp) && state != IBV_QPS_RESET && state != IBV_QPS_ERR) {
    SkipTest("the device has no DC: its queue pairs take other masks");
  }
  ibv_qp_attr attr = AttributesFor(state);
  return api.modify_qp(qp, &attr, mask);
}

void Node::ToReadyToSend() {
  if (!has_dc_) {
    if (peer_ == nullptr) return;  // of the first request
    Done(Modify(dci, IBV_QPS_RESET, IBV_QP_STATE), "to RESET");
    peer_->Listen(*this);
    Speak();
    return;
  }
  Done(Modify(dci, IBV_QPS_INIT, kDciInit), "DCI to INIT");
  Done(Modify(dci, IBV_QPS_RTR, kDciRtr), "DCI to RTR");
  Done(Modify(dci, IBV_QPS_RTS, kDciRts), "DCI to RTS");
}

void Node::Recover() {
  Done(Modify(dci, IBV_QPS_RESET, IBV_QP_STATE), "DCI to RESET");
  ToReadyToSend();
}

ibv_qp_state Node::QueryState(ibv_qp* qp) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  Done(api.query_qp(qp, &attr, IBV_QP_STATE, &init), "query_qp");
  return attr.qp_state;
}

ibv_ah_attr Node::Path() const {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = kPort;
  attr.grh.hop_limit = 64;
  Done(api.query_gid(context, kPort, 0, &attr.grh.dgid), "query_gid");
  return attr;
}

Address Node::address() const {
  return {.path = Path(),
          .dctn = dct->qp_num,
          .dc_key = options.dc_key,
          .slab = reinterpret_cast<uint64_t>(slab),
          .rkey = mr->rkey};
}

void Node::PostReceives(uint32_t count) {
  const uint32_t places = static_cast<uint32_t>(kFreeOffset) / options.receive_bytes;
  for (uint32_t i = 0; i < count; ++i, ++next_receive_) {
    const size_t offset = (next_receive_ % places) * options.receive_bytes;
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(slab + offset),
                .length = options.receive_bytes,
                .lkey = mr->lkey};
    ibv_recv_wr wr{.wr_id = offset, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    Done(ibv_post_srq_recv(srq, &wr, &bad), "posting a receive");
  }
}

ibv_ah* Node::AhTo(const Address& to) {
  const std::string key(reinterpret_cast<const char*>(to.path.grh.dgid.raw), sizeof(ibv_gid));
  ibv_ah*& ah = ahs_[key];
  if (ah == nullptr) {
    ibv_ah_attr attr = to.path;
    ah = Made(api.create_ah(pd, &attr), "create_ah");
  }
  return ah;
}

void Node::Add(const Address& to, const Request& request) {
  ibv_ah* const ah = AhTo(to);
  dci_ex->wr_id = request.wr_id;
  dci_ex->wr_flags = request.flags;
  const uint32_t rkey = request.rkey != 0 ? request.rkey : to.rkey;
  const uint64_t remote = to.slab + request.remote_offset;
  switch (request.opcode) {
    case IBV_WR_SEND:
      ibv_wr_send(dci_ex);
      break;
    case IBV_WR_SEND_WITH_IMM:
      ibv_wr_send_imm(dci_ex, htonl(request.imm));
      break;
    case IBV_WR_RDMA_WRITE:
      ibv_wr_rdma_write(dci_ex, rkey, remote);
      break;
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      ibv_wr_rdma_write_imm(dci_ex, rkey, remote, htonl(request.imm));
      break;
    case IBV_WR_RDMA_READ:
      ibv_wr_rdma_read(dci_ex, rkey, remote);
      break;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      ibv_wr_atomic_fetch_add(dci_ex, rkey, remote, request.compare_add);
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      ibv_wr_atomic_cmp_swp(dci_ex, rkey, remote, request.compare_add, request.swap);
      break;
    default:
      throw std::logic_error("not an operation that this test program knows");
  }
  const auto set_address = [&] {
    mlx5dv_wr_set_dc_addr_stream(dci_dv, ah, to.dctn, to.dc_key, request.stream);
  };
  if (request.address_first) set_address();
  const uint32_t lkey = request.lkey != 0 ? request.lkey : mr->lkey;
  const bool atomic =
      request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
  if (request.opcode == IBV_WR_RDMA_READ || atomic) {
    ibv_wr_set_sge(dci_ex, lkey, reinterpret_cast<uint64_t>(slab + request.local_offset),
                   atomic ? sizeof(uint64_t) : request.read_bytes);
  } else if (request.inlined) {
    ibv_wr_set_inline_data(dci_ex, const_cast<char*>(request.text.data()), request.text.size());
  } else {
    std::byte* at = slab + kStageOffset + (next_stage_++ % kStageSlots) * kStageSlotBytes;
    std::memcpy(at, request.text.data(), request.text.size());
    ibv_wr_set_sge(dci_ex, lkey, reinterpret_cast<uint64_t>(at),
                   static_cast<uint32_t>(request.text.size()));
  }
  if (!request.address_first) set_address();
}

int Node::Post(const Address& to, const Request& request) {
  ibv_wr_start(dci_ex);
  Add(to, request);
  return ibv_wr_complete(dci_ex);
}

ibv_wc Node::AwaitCompletion(ibv_cq* cq) {
  ibv_wc wc{};
  bed.Await("a completion", [&] {
    const int count = ibv_poll_cq(cq, 1, &wc);
    if (count < 0) throw std::runtime_error("poll_cq failed");
    return count == 1;
  });
  return wc;
}

bool Node::NoCompletion(ibv_cq* cq) {
  ibv_wc wc{};
  return ibv_poll_cq(cq, 1, &wc) == 0;
}

std::string Node::TextOf(const ibv_wc& wc) const { return SlabText(wc.wr_id, wc.byte_len); }

std::string Node::SlabText(size_t offset, size_t length) const {
  return std::string(reinterpret_cast<const char*>(slab + offset), length);
}

}  // namespace sluice::conformance
