// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/sim/sim_node.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sluice::softdc::sim {
namespace {

void Must(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "SimNode: %s failed\n", what);
  std::abort();
}

ibv_ah_attr AttributesFor(uint32_t node) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.hop_limit = 64;
  attr.grh.dgid = Simulation::Gid(node);
  return attr;
}

}  // namespace

SimNode::SimNode(Simulation& simulation, uint32_t node, const SimNodeOptions& options)
    : simulation(simulation), slab(options.slab_bytes), node_(node), options_(options) {
  const Simulation::As as(simulation, node);
  context = api.open_device(simulation.Device(node));
  Must(context != nullptr, "open_device");
  pd = api.alloc_pd(context);
  Must(pd != nullptr, "alloc_pd");
  mr = api.reg_mr(pd, slab.data(), slab.size(),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                      IBV_ACCESS_REMOTE_ATOMIC);
  Must(mr != nullptr, "reg_mr");
  send_cq = api.create_cq(context, options.cqe, nullptr, nullptr, 0);
  receive_cq = api.create_cq(context, options.cqe, nullptr, nullptr, 0);
  Must(send_cq != nullptr && receive_cq != nullptr, "create_cq");
  ibv_srq_init_attr srq_attr{};
  srq_attr.attr = {
      .max_wr = options.receives < 16 ? 16 : options.receives, .max_sge = 1, .srq_limit = 0};
  srq = api.create_srq(pd, &srq_attr);
  Must(srq != nullptr, "create_srq");
  CreateDct();
  CreateDci();
  PostReceives(options.receives);
}

SimNode::~SimNode() {
  for (const auto& [node, handle] : handles_) Must(api.destroy_ah(handle) == 0, "destroy_ah");
  Must(api.destroy_qp(dci) == 0, "destroy_qp of the DCI");
  Must(api.destroy_qp(dct) == 0, "destroy_qp of the DCT");
  Must(api.destroy_srq(srq) == 0, "destroy_srq");
  Must(api.destroy_cq(send_cq) == 0, "destroy_cq");
  Must(api.destroy_cq(receive_cq) == 0, "destroy_cq");
  Must(api.dereg_mr(mr) == 0, "dereg_mr");
  Must(api.dealloc_pd(pd) == 0, "dealloc_pd");
  Must(api.close_device(context) == 0, "close_device");
}

void SimNode::CreateDct() {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  attr.pd = pd;
  attr.send_cq = receive_cq;
  attr.recv_cq = receive_cq;
  attr.srq = srq;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = kDcKey;
  dct = api.dv_create_qp(context, &attr, &dv);
  Must(dct != nullptr, "create_qp of the DCT");
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  modify.qp_access_flags =
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  Must(api.modify_qp(dct, &modify,
                     IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS) == 0,
       "modify_qp of the DCT to INIT");
  modify.qp_state = IBV_QPS_RTR;
  modify.path_mtu = IBV_MTU_4096;
  modify.min_rnr_timer = options_.min_rnr_timer;
  modify.ah_attr = AttributesFor(node_);
  Must(api.modify_qp(dct, &modify,
                     IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU) == 0,
       "modify_qp of the DCT to RTR");
}

void SimNode::CreateDci() {
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd;
  attr.send_cq = send_cq;
  attr.recv_cq = send_cq;
  attr.cap.max_send_wr = options_.send_wr;
  attr.cap.max_send_sge = 2;
  attr.cap.max_inline_data = 128;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  mlx5dv_qp_init_attr dv{};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  if (options_.streams) {
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    dv.dc_init_attr.dci_streams = {.log_num_concurent = options_.log_streams,
                                   .log_num_errored = options_.log_errored_streams};
  }
  dci = api.dv_create_qp(context, &attr, &dv);
  Must(dci != nullptr, "create_qp of the DCI");
  dci_ex = api.qp_to_qp_ex(dci);
  dci_dv = api.dv_qp_ex_from_ibv_qp_ex(dci_ex);
  ToReadyToSend();
}

void SimNode::ToReadyToSend() {
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_INIT;
  modify.port_num = 1;
  Must(api.modify_qp(dci, &modify, IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX) == 0,
       "modify_qp of the DCI to INIT");
  modify.qp_state = IBV_QPS_RTR;
  modify.path_mtu = IBV_MTU_4096;
  Must(api.modify_qp(dci, &modify, IBV_QP_STATE | IBV_QP_PATH_MTU) == 0,
       "modify_qp of the DCI to RTR");
  modify.qp_state = IBV_QPS_RTS;
  modify.timeout = options_.timeout;
  modify.retry_cnt = options_.retry_count;
  modify.rnr_retry = options_.rnr_retry;
  modify.max_rd_atomic = options_.reads;
  Must(api.modify_qp(dci, &modify,
                     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                         IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN) == 0,
       "modify_qp of the DCI to RTS");
}

void SimNode::Recover() {
  ibv_qp_attr modify{};
  modify.qp_state = IBV_QPS_RESET;
  Must(api.modify_qp(dci, &modify, IBV_QP_STATE) == 0, "modify_qp of the DCI to RESET");
  ToReadyToSend();
}

ibv_qp_state SimNode::State() {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  Must(api.query_qp(dci, &attr, IBV_QP_STATE, &init) == 0, "query_qp");
  return attr.qp_state;
}

void SimNode::PostReceives(uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t place = next_receive_++ % (options_.receives == 0 ? 16 : options_.receives);
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(slab.data()) + place * options_.receive_bytes,
                .length = options_.receive_bytes,
                .lkey = mr->lkey};
    ibv_recv_wr wr{};
    wr.wr_id = place;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    Must(ibv_post_srq_recv(srq, &wr, &bad) == 0, "post_srq_recv");
  }
}

ibv_ah* SimNode::HandleFor(uint32_t node) {
  ibv_ah*& handle = handles_[node];
  if (handle == nullptr) {
    ibv_ah_attr attr = AttributesFor(node);
    handle = api.create_ah(pd, &attr);
    Must(handle != nullptr, "create_ah");
  }
  return handle;
}

void SimNode::Start(uint64_t wr_id) {
  ibv_wr_start(dci_ex);
  dci_ex->wr_id = wr_id;
  dci_ex->wr_flags = options_.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0u;
}

int SimNode::Finish(const SimNode& to, uint16_t stream) {
  mlx5dv_wr_set_dc_addr_stream(dci_dv, HandleFor(to.node_), to.dct->qp_num, kDcKey, stream);
  return ibv_wr_complete(dci_ex);
}

int SimNode::Send(const SimNode& to, const std::string& text, uint64_t wr_id, uint16_t stream) {
  Start(wr_id);
  ibv_wr_send(dci_ex);
  ibv_wr_set_inline_data(dci_ex, const_cast<char*>(text.data()), text.size());
  return Finish(to, stream);
}

int SimNode::SendBytes(const SimNode& to, size_t from_offset, uint32_t length_bytes, uint64_t wr_id,
                       uint16_t stream) {
  Start(wr_id);
  ibv_wr_send(dci_ex);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(slab.data()) + from_offset,
                 length_bytes);
  return Finish(to, stream);
}

int SimNode::Write(const SimNode& to, size_t to_offset, size_t from_offset, uint32_t length_bytes,
                   uint64_t wr_id, uint16_t stream, uint32_t rkey) {
  Start(wr_id);
  ibv_wr_rdma_write(dci_ex, rkey == 0 ? to.mr->rkey : rkey,
                    reinterpret_cast<uint64_t>(to.slab.data()) + to_offset);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(slab.data()) + from_offset,
                 length_bytes);
  return Finish(to, stream);
}

int SimNode::Read(const SimNode& from, size_t from_offset, size_t to_offset, uint32_t length_bytes,
                  uint64_t wr_id, uint16_t stream) {
  Start(wr_id);
  ibv_wr_rdma_read(dci_ex, from.mr->rkey,
                   reinterpret_cast<uint64_t>(from.slab.data()) + from_offset);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(slab.data()) + to_offset,
                 length_bytes);
  return Finish(from, stream);
}

int SimNode::FetchAdd(const SimNode& to, size_t offset, size_t result_offset, uint64_t add,
                      uint64_t wr_id) {
  Start(wr_id);
  ibv_wr_atomic_fetch_add(dci_ex, to.mr->rkey, reinterpret_cast<uint64_t>(to.slab.data()) + offset,
                          add);
  ibv_wr_set_sge(dci_ex, mr->lkey, reinterpret_cast<uint64_t>(slab.data()) + result_offset, 8);
  return Finish(to, /*stream=*/0);
}

ibv_wc SimNode::Await(ibv_cq* cq, int64_t limit_ns) {
  ibv_wc wc{};
  if (!simulation.RunUntil([&] { return ibv_poll_cq(cq, 1, &wc) == 1; }, limit_ns)) {
    wc = {};
    wc.status = static_cast<ibv_wc_status>(-1);
  }
  return wc;
}

std::string SimNode::Text(const ibv_wc& wc) const {
  const auto* from = reinterpret_cast<const char*>(&slab[wc.wr_id * options_.receive_bytes]);
  return std::string(from, wc.byte_len);
}

}  // namespace sluice::softdc::sim
