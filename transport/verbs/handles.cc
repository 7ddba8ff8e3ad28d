// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/handles.h"

#include <cerrno>
#include <string>
#include <string_view>

#include "transport/base/error.h"

namespace sluice::verbs {
namespace {

// Some providers return null without an errno. So each creation clears errno first, and reports EINVAL if it is still 0.
int Errno() { return errno != 0 ? errno : EINVAL; }

absl::Status Failed(int error_number, std::string_view call) {
  std::string_view cause = "the device or its driver refused the request";
  std::string_view remedy = "compare the request with the limits that sluice_info prints";
  if (error_number == ENOMEM) {
    cause = "a device limit, or the locked-memory limit of this process";
    remedy = "raise `ulimit -l`, or ask for smaller queues";
  } else if (error_number == EACCES || error_number == EPERM) {
    cause = "this user may not use the device";
    remedy = "give the user access to /dev/infiniband/*";
  }
  return base::ErrnoError(error_number, call,
                          {.layer = "verbs", .operation = call, .cause = cause, .remedy = remedy});
}

template <typename H, typename T>
absl::StatusOr<H> Own(const VerbsApi& api, T* object, std::string_view call) {
  if (object == nullptr) return Failed(Errno(), call);
  return H(&api, object);
}

absl::Status Modify(const VerbsApi& api, ibv_qp* qp, ibv_qp_attr* attr, int mask,
                    std::string_view call) {
  const int error_number = api.modify_qp(qp, attr, mask);
  return error_number == 0 ? absl::OkStatus() : Failed(error_number, call);
}

}  // namespace

absl::StatusOr<Context> OpenContext(const VerbsApi& api, ibv_device* device) {
  errno = 0;
  return Own<Context>(api, api.open_device(device), "ibv_open_device");
}

absl::StatusOr<Pd> AllocPd(const VerbsApi& api, ibv_context* context) {
  errno = 0;
  return Own<Pd>(api, api.alloc_pd(context), "ibv_alloc_pd");
}

absl::StatusOr<Mr> RegisterMemory(const VerbsApi& api, ibv_pd* pd, void* address, size_t size_bytes,
                                  int access) {
  errno = 0;
  return Own<Mr>(api, api.reg_mr(pd, address, size_bytes, access), "ibv_reg_mr");
}

absl::StatusOr<CompChannel> CreateCompChannel(const VerbsApi& api, ibv_context* context) {
  errno = 0;
  return Own<CompChannel>(api, api.create_comp_channel(context), "ibv_create_comp_channel");
}

absl::StatusOr<Cq> CreateCq(const VerbsApi& api, ibv_context* context, uint32_t depth,
                            ibv_comp_channel* channel) {
  errno = 0;
  return Own<Cq>(api, api.create_cq(context, static_cast<int>(depth), nullptr, channel, 0),
                 "ibv_create_cq");
}

absl::StatusOr<Srq> CreateSrq(const VerbsApi& api, ibv_pd* pd, uint32_t depth) {
  ibv_srq_init_attr attr = {};
  attr.attr.max_wr = depth;
  attr.attr.max_sge = 1;
  errno = 0;
  return Own<Srq>(api, api.create_srq(pd, &attr), "ibv_create_srq");
}

absl::StatusOr<IdleQp> CreateIdleQp(const VerbsApi& api, ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  errno = 0;
  return Own<IdleQp>(api, api.create_qp(pd, &attr), "ibv_create_qp");
}

absl::StatusOr<Qp> CreateDci(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* cq,
                             const DciOptions& options) {
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.send_cq = cq;
  attr.recv_cq = cq;  // never used, but libibverbs reads through it
  attr.pd = pd;
  attr.cap.max_send_wr = options.send_depth;
  attr.cap.max_send_sge = 1;
  attr.cap.max_inline_data = options.max_inline_bytes;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                        IBV_QP_EX_WITH_RDMA_READ;
  mlx5dv_qp_init_attr dv = {};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  if (options.streams) {
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
    dv.dc_init_attr.dci_streams.log_num_concurent = options.log_concurrent;
    dv.dc_init_attr.dci_streams.log_num_errored = options.log_errored;
  }
  errno = 0;
  ibv_qp* raw = api.dv_create_qp(context, &attr, &dv);
  if (raw == nullptr) return Failed(Errno(), "mlx5dv_create_qp (DCI)");
  Qp result;
  result.qp = {&api, raw};
  result.ex = api.qp_to_qp_ex(raw);
  if (result.ex == nullptr) return Failed(EOPNOTSUPP, "ibv_qp_to_qp_ex (DCI)");
  result.dv = api.dv_qp_ex_from_ibv_qp_ex(result.ex);
  return result;
}

absl::StatusOr<Qp> CreateDct(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* cq,
                             ibv_srq* srq, uint64_t access_key) {
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_DRIVER;
  attr.send_cq = cq;
  attr.recv_cq = cq;
  attr.srq = srq;
  attr.pd = pd;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD;
  mlx5dv_qp_init_attr dv = {};
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  dv.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  dv.dc_init_attr.dct_access_key = access_key;
  errno = 0;
  ibv_qp* raw = api.dv_create_qp(context, &attr, &dv);
  if (raw == nullptr) return Failed(Errno(), "mlx5dv_create_qp (DCT)");
  Qp result;
  result.qp = {&api, raw};
  return result;
}

void SetClass(const PathOptions& path, ibv_ah_attr* vector) {
  if (path.traffic_class) vector->grh.traffic_class = *path.traffic_class;
  if (path.service_level) vector->sl = *path.service_level;
}

ibv_ah_attr AddressVector(const PathOptions& path) {
  ibv_ah_attr vector = {};
  vector.is_global = 1;
  vector.grh.sgid_index = path.sgid_index;
  vector.grh.hop_limit = 64;
  vector.port_num = path.port;
  SetClass(path, &vector);
  return vector;
}

absl::Status ActivateDci(const VerbsApi& api, ibv_qp* dci, const PathOptions& path,
                         const ibv_ece* ece) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = path.pkey_index;
  attr.port_num = path.port;
  absl::Status status = Modify(api, dci, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
                               "ibv_modify_qp (DCI, INIT)");
  if (!status.ok()) return status;

  if (ece != nullptr) {
    ibv_ece copy = *ece;
    const int error_number = api.set_ece(dci, &copy);
    if (error_number != 0) {
      return base::ErrnoError(error_number, "ibv_set_ece (DCI)", {.layer = "verbs"});
    }
  }
  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = path.mtu;
  attr.ah_attr = AddressVector(path);
  status = Modify(api, dci, &attr, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV,
                  "ibv_modify_qp (DCI, RTR)");
  if (!status.ok()) return status;

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = path.timeout;
  attr.retry_cnt = path.retry_count;
  attr.rnr_retry = path.rnr_retry;
  attr.max_rd_atomic = path.max_rd_atomic;
  attr.sq_psn = 0;
  return Modify(api, dci, &attr,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN,
                "ibv_modify_qp (DCI, RTS)");
}

absl::Status ResetDci(const VerbsApi& api, ibv_qp* dci) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  return Modify(api, dci, &attr, IBV_QP_STATE, "ibv_modify_qp (DCI, RESET)");
}

absl::Status ActivateDct(const VerbsApi& api, ibv_qp* dct, const PathOptions& path, int access) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.qp_access_flags = static_cast<unsigned>(access);
  attr.pkey_index = path.pkey_index;
  attr.port_num = path.port;
  absl::Status status =
      Modify(api, dct, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT,
             "ibv_modify_qp (DCT, INIT)");
  if (!status.ok()) return status;

  attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.min_rnr_timer = path.min_rnr_timer;
  attr.path_mtu = path.mtu;
  attr.ah_attr = AddressVector(path);
  return Modify(api, dct, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU,
                "ibv_modify_qp (DCT, RTR)");
}

absl::StatusOr<ibv_qp_state> QueryState(const VerbsApi& api, ibv_qp* qp) {
  ibv_qp_attr attr = {};
  ibv_qp_init_attr init_attr = {};
  const int error_number = api.query_qp(qp, &attr, IBV_QP_STATE, &init_attr);
  if (error_number != 0) return Failed(error_number, "ibv_query_qp");
  return attr.qp_state;
}

std::string_view Name(DataOrder order) {
  switch (order) {
    case DataOrder::kNone:
      return "no order";
    case DataOrder::kBlocks128:
      return "aligned 128-byte blocks in order";
    case DataOrder::kWholeMessage:
      return "whole messages in order";
  }
  return "unknown";
}

DataOrder QueryDataOrder(const VerbsApi& api, ibv_qp* qp, ibv_wr_opcode opcode) {
  // IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS and _WHOLE_MSG, _ALIGNED_128_BYTES (rdma-core 46). An older library returns 0 for any flag, so
  // the call is repeated without flags.
  constexpr uint32_t kReturnCaps = 1u << 0;
  constexpr int kWholeMessage = 1 << 0;
  constexpr int kAligned128 = 1 << 1;
  const int caps = api.query_qp_data_in_order(qp, opcode, kReturnCaps);
  if (caps > 0 && (caps & kWholeMessage) != 0) return DataOrder::kWholeMessage;
  if (caps > 0 && (caps & kAligned128) != 0) return DataOrder::kBlocks128;
  if (caps == 0 && api.query_qp_data_in_order(qp, opcode, 0) == 1) return DataOrder::kWholeMessage;
  return DataOrder::kNone;
}

}  // namespace sluice::verbs
