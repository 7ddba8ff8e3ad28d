// SPDX-License-Identifier: Apache-2.0
//
// A process that receives no messages, as if its host had died after the handshake: its DCT for messages has another key
// than the process announces. The first DCT of a process is the one with which Sluice tries the device.
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#define SYMBOL \
  "_ZN6sluice6softdc10DvCreateQpEP11ibv_contextP19ibv_qp_init_attr_exP19mlx5dv_qp_init_attr"

ibv_qp* CreateQpOfSoftdc(ibv_context* context, ibv_qp_init_attr_ex* attr,
                         mlx5dv_qp_init_attr* dv) __asm__("__real_" SYMBOL);
ibv_qp* CreateDeafQp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                     mlx5dv_qp_init_attr* dv) __asm__("__wrap_" SYMBOL);

ibv_qp* CreateDeafQp(ibv_context* context, ibv_qp_init_attr_ex* attr, mlx5dv_qp_init_attr* dv) {
  static int dcts = 0;
  if (dv->dc_init_attr.dc_type == MLX5DV_DCTYPE_DCT && ++dcts == 2) {
    dv->dc_init_attr.dct_access_key ^= 1;
  }
  return CreateQpOfSoftdc(context, attr, dv);
}
