// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/rc.h"

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "transport/base/error.h"

namespace sluice::verbs {
namespace {

absl::Status Failed(int error_number, std::string_view call) {
  return base::ErrnoError(
      error_number, call,
      {.layer = "verbs",
       .operation = call,
       .cause = "the device or its driver refused the request",
       .remedy = "compare the request with the limits that sluice_info prints"});
}

absl::Status Modify(const VerbsApi& api, ibv_qp* qp, ibv_qp_attr* attr, int mask,
                    std::string_view call) {
  const int error_number = api.modify_qp(qp, attr, mask);
  return error_number == 0 ? absl::OkStatus() : Failed(error_number, call);
}

// Is ibv_create_qp_ex(). The inline of the header needs the library at link time.
ibv_qp* CreateExtended(ibv_context* context, ibv_qp_init_attr_ex* attr) {
  verbs_context* const operations = verbs_get_ctx_op(context, create_qp_ex);
  if (operations != nullptr) return operations->create_qp_ex(context, attr);
  errno = EOPNOTSUPP;
  return nullptr;
}

}  // namespace

absl::StatusOr<Qp> CreateRc(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* send_cq,
                            ibv_cq* receive_cq, const RcOptions& options) {
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = send_cq;
  attr.recv_cq = receive_cq;
  attr.pd = pd;
  attr.cap = {.max_send_wr = options.send_depth,
              .max_recv_wr = options.receive_depth,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = options.max_inline_bytes};
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ;
  mlx5dv_qp_init_attr dv = {};
  // If the device placed data in a completion, the memory that a signature covers would not have this data.
  dv.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  dv.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  if (options.pipelining) dv.create_flags |= MLX5DV_QP_CREATE_SIG_PIPELINING;
  if (options.mkeys) {
    dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
    dv.send_ops_flags = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE;
  }
  const bool mlx5 = api.dv_is_supported(context->device);
  Qp result;
  errno = 0;
  result.qp = {&api, mlx5 ? api.dv_create_qp(context, &attr, &dv) : CreateExtended(context, &attr)};
  if (!result.qp) {
    return Failed(errno != 0 ? errno : EINVAL,
                  mlx5 ? "mlx5dv_create_qp (RC)" : "ibv_create_qp_ex (RC)");
  }
  result.ex = api.qp_to_qp_ex(result.get());
  if (result.ex == nullptr) return Failed(EOPNOTSUPP, "ibv_qp_to_qp_ex (RC)");
  if (mlx5) result.dv = api.dv_qp_ex_from_ibv_qp_ex(result.ex);
  return result;
}

absl::StatusOr<SharedRc> CreateSharedRc(const VerbsApi& api, ibv_pd* pd, ibv_cq* send_cq,
                                        ibv_cq* receive_cq, ibv_srq* srq, uint32_t send_depth) {
  ibv_qp_init_attr attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.send_cq = send_cq;
  attr.recv_cq = receive_cq;
  attr.srq = srq;
  attr.cap.max_send_wr = send_depth;
  attr.cap.max_send_sge = 1;
  errno = 0;
  ibv_qp* qp = api.create_qp(pd, &attr);
  if (qp == nullptr) return Failed(errno != 0 ? errno : EINVAL, "ibv_create_qp (RC)");
  return SharedRc(&api, qp);
}

absl::Status InitRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path, int access) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.pkey_index = path.pkey_index;
  attr.port_num = path.port;
  attr.qp_access_flags = static_cast<unsigned>(access);
  return Modify(api, qp, &attr,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
                "ibv_modify_qp (RC, INIT)");
}

absl::Status ConnectRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path,
                       const RcRoute& route) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = path.mtu;
  attr.dest_qp_num = route.number;
  attr.rq_psn = route.receive_psn;
  const uint8_t reads =
      route.reads == 0 ? path.max_rd_atomic : std::min(route.reads, path.max_rd_atomic);
  attr.max_dest_rd_atomic = reads;
  attr.min_rnr_timer = path.min_rnr_timer;
  attr.ah_attr = route.ah;
  absl::Status status = Modify(api, qp, &attr,
                               IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                               "ibv_modify_qp (RC, RTR)");
  if (!status.ok()) return status;

  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = path.timeout;
  attr.retry_cnt = path.retry_count;
  attr.rnr_retry = path.rnr_retry;
  attr.sq_psn = route.send_psn;
  attr.max_rd_atomic = reads;
  return Modify(api, qp, &attr,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                    IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
                "ibv_modify_qp (RC, RTS)");
}

absl::Status AllowRc(const VerbsApi& api, ibv_qp* qp, int access) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.qp_access_flags = static_cast<unsigned>(access);
  return Modify(api, qp, &attr, IBV_QP_STATE | IBV_QP_ACCESS_FLAGS, "ibv_modify_qp (RC, rights)");
}

absl::Status ActivateRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path,
                        const RcPeer& peer, int access) {
  absl::Status status = InitRc(api, qp, path, access);
  if (!status.ok()) return status;
  RcRoute route{.ah = AddressVector(path), .number = peer.number};
  route.ah.grh.dgid = peer.gid;
  route.ah.dlid = peer.lid;
  return ConnectRc(api, qp, path, route);
}

absl::Status ResumeRc(const VerbsApi& api, ibv_qp* qp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.cur_qp_state = IBV_QPS_SQD;
  return Modify(api, qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE, "ibv_modify_qp (RC, SQD to RTS)");
}

absl::Status StopRc(const VerbsApi& api, ibv_qp* qp) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  return Modify(api, qp, &attr, IBV_QP_STATE, "ibv_modify_qp (RC, ERR)");
}

}  // namespace sluice::verbs
