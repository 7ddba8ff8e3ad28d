// SPDX-License-Identifier: Apache-2.0
//
// VerbsApi: the one seam of Sluice. A table of the control-path calls to libibverbs, libmlx5 and
// librdmacm, with the man pages of those libraries as its contract (results and errno included).
//
// Two tables exist: NativeVerbs() (the system libraries) and softdc::Verbs() (the software NIC).
// The data path needs no table: ibv_wr_*, mlx5dv_wr_*, ibv_poll_cq, ibv_req_notify_cq and ibv_post_srq_recv are inlines that dispatch
// through the object itself, and are called directly.
//
// Threads       Tables are constant; the calls are as thread-safe as the man pages say.
#ifndef SLUICE_TRANSPORT_VERBS_VERBS_API_H_
#define SLUICE_TRANSPORT_VERBS_VERBS_API_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cstddef>

namespace sluice::verbs {

struct VerbsApi {
  const char* name;  // "native" or "softdc", for reports

#define SLUICE_IBV(name) decltype(&::ibv_##name) name;
#define SLUICE_DV(name) decltype(&::mlx5dv_##name) dv_##name;
#define SLUICE_CM(name) decltype(&::rdma_##name) cm_##name;
#include "transport/verbs/verbs_functions.inc"
#undef SLUICE_IBV
#undef SLUICE_DV
#undef SLUICE_CM

  // Declared by hand, because they are macros or inlines in the headers (man ibv_reg_mr, ibv_query_port, ibv_query_gid_ex).
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* addr, size_t length, int access);
  int (*query_port)(ibv_context* context, uint8_t port_num, ibv_port_attr* attr);
  int (*query_gid_ex)(ibv_context* context, uint32_t port_num, uint32_t index,
                      ibv_gid_entry* entry);
  int (*dv_mkey_check)(mlx5dv_mkey* mkey, mlx5dv_mkey_err* err_info);
};

// Returns the table of the system libraries. Links libibverbs, libmlx5 and librdmacm. Without hardware it works and lists no device.
const VerbsApi& NativeVerbs();

}  // namespace sluice::verbs

#endif  // SLUICE_TRANSPORT_VERBS_VERBS_API_H_
