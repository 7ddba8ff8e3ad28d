// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/grh.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {
namespace {

constexpr uint8_t kNextHeaderUdp = 17;
constexpr size_t kIpv4Offset = 20;
constexpr size_t kIpv4Bytes = 20;
constexpr uint8_t kHasUdpHeader = 8;  // of a RoCE packet's type
constexpr uint8_t kTypeIpv6 = 1;
constexpr uint8_t kTypeIpv4 = 2;
constexpr uint32_t kUdpAndTransportBytes = 8 + 12 + 8 + 4;  // UDP, BTH, DETH, ICRC

bool IsMappedIpv4(const ibv_gid& gid) {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.raw, kPrefix, sizeof(kPrefix)) == 0;
}

void Put16(std::byte* to, uint32_t value) {
  to[0] = std::byte(value >> 8);
  to[1] = std::byte(value);
}

// RFC 791: the ones' complement of the sum of all halfwords.
uint16_t HeaderChecksum(const std::byte* header) {
  uint32_t sum = 0;
  for (size_t i = 0; i < kIpv4Bytes; i += 2) {
    sum += std::to_integer<uint32_t>(header[i]) << 8 | std::to_integer<uint32_t>(header[i + 1]);
  }
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(~sum);
}

void PutIpv4(std::byte* ip, const DatagramOperands& address, uint32_t payload_bytes) {
  ip[0] = std::byte{0x45};  // version 4, five words
  ip[1] = std::byte(address.traffic_class);
  Put16(ip + 2, static_cast<uint32_t>(kIpv4Bytes) + kUdpAndTransportBytes + payload_bytes);
  Put16(ip + 6, 0x4000);  // do not fragment
  ip[8] = std::byte(address.hop_limit);
  ip[9] = std::byte{kNextHeaderUdp};
  std::memcpy(ip + 12, address.source.raw + 12, 4);
  std::memcpy(ip + 16, address.destination.raw + 12, 4);
  Put16(ip + 10, HeaderChecksum(ip));
}

}  // namespace

Grh MakeGrh(const DatagramOperands& address, uint32_t payload_bytes) {
  Grh grh{};
  if (!address.has_grh || Mutated(Mutation::kHeaderEmpty)) return grh;
  if (IsMappedIpv4(address.source) && IsMappedIpv4(address.destination)) {
    PutIpv4(grh.data() + kIpv4Offset, address, payload_bytes);
    return grh;
  }
  const uint32_t first =
      htonl(6u << 28 | uint32_t{address.traffic_class} << 20 | (address.flow_label & 0xfffff));
  std::memcpy(grh.data(), &first, sizeof(first));
  Put16(grh.data() + 4, kUdpAndTransportBytes + payload_bytes);
  grh[6] = std::byte{kNextHeaderUdp};
  grh[7] = std::byte(address.hop_limit);
  std::memcpy(grh.data() + 8, address.source.raw, sizeof(address.source.raw));
  std::memcpy(grh.data() + 24, address.destination.raw, sizeof(address.destination.raw));
  return grh;
}

uint8_t RocePacketType(const ibv_gid& source, const ibv_gid& destination) {
  const bool ipv4 = IsMappedIpv4(source) && IsMappedIpv4(destination);
  return kHasUdpHeader | (ipv4 ? kTypeIpv4 : kTypeIpv6);
}

}  // namespace sluice::softdc
