// SPDX-License-Identifier: Apache-2.0
//
// Dct: a DC target. ibv_modify_qp to RTR makes it ready and gives it its number. It cannot return to an earlier state; it is only
// destroyed.
//
// Threads       As a QP of libibverbs.
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_DCT_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_DCT_H_

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>

#include "transport/softdc/model/responder.h"

namespace sluice::softdc {

class Context;

class Dct {
 public:
  // `base` is the user's handle; it must stay first.
  ibv_qp base{};
  static Dct* From(ibv_qp* qp) { return reinterpret_cast<Dct*>(qp); }
  static bool Is(const ibv_qp* qp);

  Dct(Context& context, uint64_t dc_key);
  ~Dct();

  int Modify(const ibv_qp_attr& attr, int attr_mask);
  int Query(ibv_qp_attr* attr, int attr_mask, ibv_qp_init_attr* init);
  int SetEce(const ibv_ece& ece);
  int QueryEce(ibv_ece* ece);

 private:
  int BecomeReady();
  uint64_t OwnMark() const;  // gid_mark.h

  Context& context_;
  const uint64_t dc_key_;
  ibv_qp_state state_ = IBV_QPS_RESET;
  ibv_qp_attr attr_{};
  uint32_t ece_options_ = 0;
  uint32_t ece_pending_options_ = 0;
  std::unique_ptr<Responder> responder_;
};

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_DCT_H_
