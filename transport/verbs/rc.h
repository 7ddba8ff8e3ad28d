// SPDX-License-Identifier: Apache-2.0
//
// RC queue pairs, for operations that DCIs refuse (the configuration of memory keys, and the stop at a wrong signature), and for the
// peers of a device without DC.
//
// Threads       Any, one at a time. All functions may block in kernel or firmware: a poller runs them in Commands.
// Errors        A status with the call and the errno.
#ifndef SLUICE_TRANSPORT_VERBS_RC_H_
#define SLUICE_TRANSPORT_VERBS_RC_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/verbs/handles.h"

namespace sluice::verbs {

struct RcOptions {
  uint32_t send_depth = 64;
  uint32_t receive_depth = 64;
  uint32_t max_inline_bytes = 0;
  bool mkeys = false;       // MLX5DV_QP_EX_WITH_MKEY_CONFIGURE; mlx5 only
  bool pipelining = false;  // MLX5DV_QP_CREATE_SIG_PIPELINING; mlx5 only
};
// Creates a queue pair in state RESET, with builders for SEND, WRITE and READ (man mlx5dv_create_qp, ibv_wr_post). Its number is valid.
// Devices of other vendors: with ibv_create_qp_ex, and Qp::dv is null.
absl::StatusOr<Qp> CreateRc(const VerbsApi& api, ibv_context* context, ibv_pd* pd, ibv_cq* send_cq,
                            ibv_cq* receive_cq, const RcOptions& options);

// Number and address of the peer's queue pair.
struct RcPeer {
  uint32_t number = 0;
  ibv_gid gid = {};
  uint16_t lid = 0;  // InfiniBand only
};
// Moves the queue pair from RESET through INIT and RTR to RTS. `access`: rights of the peer.
absl::Status ActivateRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path,
                        const RcPeer& peer, int access);
// A queue pair that receives from a shared receive queue and sends with ibv_post_send. Each provider supports it. It is created in state
// RESET, and its number is valid.
using SharedRc = Handle<ibv_qp, &VerbsApi::destroy_qp>;
absl::StatusOr<SharedRc> CreateSharedRc(const VerbsApi& api, ibv_pd* pd, ibv_cq* send_cq,
                                        ibv_cq* receive_cq, ibv_srq* srq, uint32_t send_depth);

// Moves the queue pair from RESET to INIT. `access`: rights of the peer.
absl::Status InitRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path, int access);
// Path to the peer's queue pair. Packet sequence numbers have 24 bits.
struct RcRoute {
  ibv_ah_attr ah = {};
  uint32_t number = 0;
  uint32_t receive_psn = 0;  // first sequence number of the peer
  uint32_t send_psn = 0;
  uint8_t reads =
      0;  // maximum READs in flight that the peer has, in each direction; 0: as many as this side
};
// Moves the queue pair from INIT through RTR to RTS.
absl::Status ConnectRc(const VerbsApi& api, ibv_qp* qp, const PathOptions& path,
                       const RcRoute& route);
// Changes the rights of the peer. The queue pair must be in RTS.
absl::Status AllowRc(const VerbsApi& api, ibv_qp* qp, int access);
// Moves the queue pair from SQD to RTS (man mlx5dv_qp_cancel_posted_send_wrs). Names the present state, because the kernel may assume RTS.
absl::Status ResumeRc(const VerbsApi& api, ibv_qp* qp);
// Moves the queue pair to ERR: the device flushes all posted requests.
absl::Status StopRc(const VerbsApi& api, ibv_qp* qp);

}  // namespace sluice::verbs

#endif  // SLUICE_TRANSPORT_VERBS_RC_H_
