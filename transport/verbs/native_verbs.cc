// SPDX-License-Identifier: Apache-2.0
#include "transport/verbs/verbs_api.h"

namespace sluice::verbs {
namespace {

// Functions for calls that are macros or inlines in the headers and so have no address.
ibv_mr* RegMr(ibv_pd* pd, void* addr, size_t length, int access) {
  return ibv_reg_mr(pd, addr, length, static_cast<unsigned>(access));
}

int QueryPort(ibv_context* context, uint8_t port_num, ibv_port_attr* attr) {
  return ibv_query_port(context, port_num, attr);
}

int QueryGidEx(ibv_context* context, uint32_t port_num, uint32_t index, ibv_gid_entry* entry) {
  return ibv_query_gid_ex(context, port_num, index, entry, /*flags=*/0);
}

int MkeyCheck(mlx5dv_mkey* mkey, mlx5dv_mkey_err* error) { return mlx5dv_mkey_check(mkey, error); }

}  // namespace

const VerbsApi& NativeVerbs() {
  static constexpr VerbsApi kTable = {
      .name = "native",
#define SLUICE_IBV(name) .name = &::ibv_##name,
#define SLUICE_DV(name) .dv_##name = &::mlx5dv_##name,
#define SLUICE_CM(name) .cm_##name = &::rdma_##name,
#include "transport/verbs/verbs_functions.inc"
#undef SLUICE_IBV
#undef SLUICE_DV
#undef SLUICE_CM
      .reg_mr = &RegMr,
      .query_port = &QueryPort,
      .query_gid_ex = &QueryGidEx,
      .dv_mkey_check = &MkeyCheck,
  };
  return kTable;
}

}  // namespace sluice::verbs
