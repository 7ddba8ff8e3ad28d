// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/qp_attributes.h"

#include <algorithm>

namespace sluice::softdc::cm {

uint8_t AckTimeout(uint8_t ca_ack_delay, uint8_t packet_lifetime) {
  // 2^a + 2^b, rounded up to a power of two. The lifetime counts twice, because the acknowledgement comes
  // back.
  int timeout = packet_lifetime + 1;
  if (timeout >= ca_ack_delay) {
    timeout += ca_ack_delay >= timeout - 1;
  } else {
    timeout = ca_ack_delay + (timeout >= ca_ack_delay - 1);
  }
  return static_cast<uint8_t>(std::min(timeout, 31));
}

int64_t TimewaitNs(uint8_t ack_timeout) {
  const int shift = std::clamp(ack_timeout - 8, 0, 23);
  return (int64_t{1} << shift) * 1'000'000;
}

uint32_t FlowLabel(uint16_t source_port, uint16_t destination_port) {
  const uint64_t product = uint64_t{source_port} * 31 * destination_port;
  const auto label = static_cast<uint32_t>((product ^ product >> 20 ^ product >> 40) & 0xfffff);
  return label != 0 ? label : 1;
}

ibv_ah_attr AddressVector(const QpFacts& facts) {
  ibv_ah_attr vector{};
  vector.is_global = 1;
  vector.port_num = kPortNum;
  vector.grh.dgid = facts.peer_gid;
  vector.grh.sgid_index = facts.local_gid_index;
  vector.grh.hop_limit = kHopLimit;
  vector.grh.traffic_class = facts.traffic_class;
  vector.grh.flow_label = facts.flow_label;
  vector.static_rate = facts.static_rate;
  return vector;
}

bool FillQpAttr(ibv_qp_state state, const QpFacts* facts, ibv_qp_attr* attr, int* mask) {
  switch (state) {
    case IBV_QPS_INIT:
      attr->qp_access_flags = 0;
      if (facts != nullptr) {
        attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
        if (facts->responder_resources != 0) {
          attr->qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
        }
      }
      attr->pkey_index = 0;
      attr->port_num = kPortNum;
      *mask = IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      return true;
    case IBV_QPS_RTR:
      if (facts == nullptr) return false;
      attr->ah_attr = AddressVector(*facts);
      attr->path_mtu = facts->path_mtu;
      attr->dest_qp_num = facts->peer_qp_num;
      attr->rq_psn = facts->peer_psn;
      attr->max_dest_rd_atomic = facts->responder_resources;
      attr->min_rnr_timer = 0;
      *mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      return true;
    case IBV_QPS_RTS:
      if (facts == nullptr) return false;
      attr->sq_psn = facts->local_psn;
      attr->retry_cnt = facts->retry_count;
      attr->rnr_retry = facts->rnr_retry_count;
      attr->max_rd_atomic = facts->initiator_depth;
      attr->timeout = facts->timeout;
      *mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
              IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT;
      return true;
    default:
      return false;
  }
}

}  // namespace sluice::softdc::cm
