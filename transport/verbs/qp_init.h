// SPDX-License-Identifier: Apache-2.0
//
// ToExtended(): converts the attributes of ibv_create_qp to attributes of ibv_create_qp_ex.
//
// Threads       Any: a pure function.
#ifndef SLUICE_TRANSPORT_VERBS_QP_INIT_H_
#define SLUICE_TRANSPORT_VERBS_QP_INIT_H_

#include <infiniband/verbs.h>

namespace sluice::verbs {

// Returns the attributes of ibv_create_qp, as ibv_create_qp_ex takes them.
inline ibv_qp_init_attr_ex ToExtended(ibv_pd* pd, const ibv_qp_init_attr& attr) {
  ibv_qp_init_attr_ex extended{};
  extended.qp_context = attr.qp_context;
  extended.send_cq = attr.send_cq;
  extended.recv_cq = attr.recv_cq;
  extended.srq = attr.srq;
  extended.cap = attr.cap;
  extended.qp_type = attr.qp_type;
  extended.sq_sig_all = attr.sq_sig_all;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd;
  return extended;
}

}  // namespace sluice::verbs

#endif  // SLUICE_TRANSPORT_VERBS_QP_INIT_H_
