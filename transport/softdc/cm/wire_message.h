// SPDX-License-Identifier: Apache-2.0
//
// The messages between two CM engines, one message per packet. Both ends are processes of one host, so integers have the host's byte order.
// DecodeMessage checks all bytes from a peer.
#ifndef SLUICE_TRANSPORT_SOFTDC_CM_WIRE_MESSAGE_H_
#define SLUICE_TRANSPORT_SOFTDC_CM_WIRE_MESSAGE_H_

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::softdc::cm {

// Maximum number of bytes of private data that the kernel's CM carries for an application (RDMA_PS_TCP, IP
// addresses).
constexpr size_t kReqPrivateDataBytes = 56;
constexpr size_t kRepPrivateDataBytes = 196;
constexpr size_t kRejPrivateDataBytes = 148;
// The same for datagrams (RDMA_PS_UDP).
constexpr size_t kSidrReqPrivateDataBytes = 180;
constexpr size_t kSidrRepPrivateDataBytes = 136;

// IB CM reject reasons (IB specification, table 108; the kernel's enum ib_cm_rej_reason).
constexpr int kRejTimeout = 4;
constexpr int kRejInvalidServiceId = 8;
constexpr int kRejStaleConnection = 10;
constexpr int kRejConsumerDefined = 28;
constexpr int kRejVendorOptionNotSupported = 35;

// Status of a request for a datagram queue pair (enum ib_cm_sidr_status).
constexpr int kSidrSuccess = 0;
constexpr int kSidrUnsupported = 1;
constexpr int kSidrReject = 2;

enum class MessageType : uint8_t {
  kReq = 1,
  kMra,
  kBusy,
  kRep,
  kRtu,
  kRej,
  kDreq,
  kDrep,
  kSidrReq,
  kSidrRep,
};

// An IPv4 or IPv6 address and a port.
struct WireAddress {
  uint16_t family;  // AF_INET or AF_INET6
  uint16_t port;    // network byte order
  uint32_t scope_id;
  uint8_t bytes[16];  // an IPv4 address uses the first four
};

// One layout for all types. A type sets the members that it needs; the others are zero.
struct WireMessage {
  uint32_t magic;
  uint16_t version;
  MessageType type;
  uint8_t reject_reason;  // REJ: reason; SIDR_REP: status
  uint64_t node_guid;
  uint32_t qp_num;         // 24 bits
  uint32_t psn;            // 24 bits
  uint32_t ece_vendor_id;  // 24 bits
  uint32_t ece_options;
  WireAddress source;
  WireAddress destination;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retry_count;
  uint8_t rnr_retry_count;
  uint8_t srq;
  uint8_t ack_timeout;  // log2, 5 bits
  uint8_t traffic_class;
  uint8_t private_data[kRepPrivateDataBytes];
  uint32_t qkey;  // SIDR_REP
};
static_assert(sizeof(WireAddress) == 24);
static_assert(sizeof(WireMessage) == 32 + 2 * 24 + 8 + 196 + 4);

constexpr uint32_t kWireMagic = 0x4d435344;  // "DSCM"
constexpr uint16_t kWireVersion = 2;

// Returns a message that is zero except for magic, version and type.
WireMessage NewMessage(MessageType type);

// Decodes a message. Returns false if the length, magic, version or type is wrong, or a field is out of
// range. All members of `message` are set in both cases.
bool DecodeMessage(std::span<const std::byte> bytes, WireMessage* message);

}  // namespace sluice::softdc::cm

#endif  // SLUICE_TRANSPORT_SOFTDC_CM_WIRE_MESSAGE_H_
