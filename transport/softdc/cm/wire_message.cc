// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/wire_message.h"

#include <sys/socket.h>

#include <cstring>

namespace sluice::softdc::cm {
namespace {

bool IsAddress(const WireAddress& address) {
  return address.family == AF_INET || address.family == AF_INET6;
}

constexpr uint32_t k24Bits = 0xffffff;

}  // namespace

WireMessage NewMessage(MessageType type) {
  WireMessage message;
  std::memset(&message, 0, sizeof(message));
  message.magic = kWireMagic;
  message.version = kWireVersion;
  message.type = type;
  return message;
}

bool DecodeMessage(std::span<const std::byte> bytes, WireMessage* message) {
  *message = NewMessage(MessageType::kReq);
  if (bytes.size() != sizeof(*message)) return false;
  std::memcpy(message, bytes.data(), sizeof(*message));
  if (message->magic != kWireMagic || message->version != kWireVersion) return false;
  if (message->type < MessageType::kReq || message->type > MessageType::kSidrRep) return false;
  if ((message->qp_num | message->psn | message->ece_vendor_id) > k24Bits) return false;
  if (message->retry_count > 7 || message->rnr_retry_count > 7) return false;
  if (message->ack_timeout > 31) return false;
  if (message->type == MessageType::kReq || message->type == MessageType::kSidrReq) {
    return IsAddress(message->source) && IsAddress(message->destination);
  }
  return true;
}

}  // namespace sluice::softdc::cm
