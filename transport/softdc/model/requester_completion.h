// SPDX-License-Identifier: Apache-2.0
//
// The fields of the requester's completion of a work request (man ibv_poll_cq).
#ifndef SLUICE_TRANSPORT_SOFTDC_MODEL_REQUESTER_COMPLETION_H_
#define SLUICE_TRANSPORT_SOFTDC_MODEL_REQUESTER_COMPLETION_H_

#include <infiniband/verbs.h>

#include "transport/softdc/model/mutation.h"
#include "transport/softdc/model/wqe.h"

namespace sluice::softdc {

inline ibv_wc_opcode RequesterOpcode(uint8_t opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_DRIVER1:
      return IBV_WC_DRIVER1;
    default:
      return IBV_WC_SEND;
  }
}

inline ibv_wc RequesterCompletion(const Wqe& wqe, uint32_t qp_number) {
  ibv_wc wc{};
  wc.wr_id = wqe.wr_id;
  wc.status = static_cast<ibv_wc_status>(wqe.status);
  wc.opcode = RequesterOpcode(wqe.opcode);
  wc.vendor_err = wqe.vendor_error;
  wc.qp_num = qp_number;
  if (ReturnsData(wqe.opcode)) wc.byte_len = wqe.length_bytes;
  if ((wqe.opcode == IBV_WR_SEND_WITH_IMM || wqe.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) &&
      !Mutated(Mutation::kSenderForgetsImmediate)) {
    wc.wc_flags = IBV_WC_WITH_IMM;
  }
  return wc;
}

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_MODEL_REQUESTER_COMPLETION_H_
