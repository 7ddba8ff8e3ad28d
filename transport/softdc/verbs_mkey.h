// SPDX-License-Identifier: Apache-2.0
//
// Indirect memory keys and signature pipelining: mlx5dv_create_mkey(3), mlx5dv_mkey_check(3), mlx5dv_qp_cancel_posted_send_wrs(3). The
// functions behave as their manual pages say. Configuration WRs are in model/mkey_post.h.
#ifndef SLUICE_TRANSPORT_SOFTDC_VERBS_MKEY_H_
#define SLUICE_TRANSPORT_SOFTDC_VERBS_MKEY_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace sluice::softdc {

mlx5dv_mkey* DvCreateMkey(mlx5dv_mkey_init_attr* attr);
int DvDestroyMkey(mlx5dv_mkey* mkey);
// The library function behind mlx5dv_mkey_check. `size_bytes`: size of the caller's structure. It is smaller if the caller was built with
// an older header.
int DvMkeyCheckSized(mlx5dv_mkey* mkey, mlx5dv_mkey_err* error, size_t size_bytes);
inline int DvMkeyCheck(mlx5dv_mkey* mkey, mlx5dv_mkey_err* error) {
  return DvMkeyCheckSized(mkey, error, sizeof(*error));
}
int DvQpCancelPostedSendWrs(mlx5dv_qp_ex* dv, uint64_t wr_id);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_VERBS_MKEY_H_
