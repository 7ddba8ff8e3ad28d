// SPDX-License-Identifier: Apache-2.0
//
// The attributes that rdma_init_qp_attr returns for a connection, and the time arithmetic of the CM, as in
// the kernel's cm.c. The masks are those of an RC queue pair. A DC application takes port, path_mtu, ah_attr
// and timeout from them.
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_QP_ATTRIBUTES_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_QP_ATTRIBUTES_H_

#include <infiniband/verbs.h>

#include <cstdint>

#include "transport/softdc/loop/gids.h"

namespace sluice::softdc::cm {

constexpr uint8_t kRocePacketLifetime = 16;  // log2 of 4.096 us; the kernel's default for RoCE
constexpr uint8_t kCaAckDelay = 16;          // ibv_device_attr.local_ca_ack_delay, as on mlx5
constexpr uint8_t kMaxRdAtomic = 16;         // ibv_device_attr.max_qp_rd_atom, as on mlx5
constexpr uint8_t kHopLimit = 64;
constexpr uint8_t kPortNum = 1;

// Returns log2 of the local ACK timeout from the delay of the device and the lifetime of the path, both log2.
// At most 31.
uint8_t AckTimeout(uint8_t ca_ack_delay, uint8_t packet_lifetime);

// Returns the time that a connection stays in timewait. About 1 s for RoCE's defaults (ack_timeout 18).
int64_t TimewaitNs(uint8_t ack_timeout);

// Returns the flow label of a connection on RoCE v2, computed from its two ports as in the kernel. 20 bits,
// not 0.
uint32_t FlowLabel(uint16_t source_port, uint16_t destination_port);

struct QpFacts {
  Gid peer_gid;
  Gid local_gid;
  uint8_t local_gid_index;
  uint32_t peer_qp_num;
  uint32_t local_psn;
  uint32_t peer_psn;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t timeout;
  uint8_t traffic_class;
  uint8_t static_rate = IBV_RATE_MAX;
  uint32_t flow_label = 0;
  ibv_mtu path_mtu = IBV_MTU_4096;
};

// Returns whether ids of this type look up a datagram queue pair of the peer instead of connecting.
inline bool IsDatagram(ibv_qp_type type) { return type == IBV_QPT_UD; }

// Returns the address vector of the peer.
ibv_ah_attr AddressVector(const QpFacts& facts);

// Fills the members of *attr for the transition into `state` and sets *mask to them. `facts` may be nullptr
// for IBV_QPS_INIT before there is a connection. Returns false if the state is not INIT, RTR or RTS, or RTR
// or RTS lacks `facts`.
bool FillQpAttr(ibv_qp_state state, const QpFacts* facts, ibv_qp_attr* attr, int* mask);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_QP_ATTRIBUTES_H_
