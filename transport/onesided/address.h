// SPDX-License-Identifier: Apache-2.0
//
// Address: the address of a mover for one peer.
//
// Ownership     A value.
#ifndef SLUICE_TRANSPORT_ONESIDED_ADDRESS_H_
#define SLUICE_TRANSPORT_ONESIDED_ADDRESS_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace sluice::onesided {

// Address of one side for one peer, and the limits of that side. Users send it in any message.
struct Address {
  std::array<std::byte, 16> gid = {};
  uint16_t lid = 0;   // of the port; 0 on RoCE
  uint32_t dctn = 0;  // number of the DCT, or of the RC queue pair
  uint64_t access_key = 0;
  uint32_t place = 0;
  uint64_t token = 0;   // never 0
  uint32_t window = 0;  // maximum number of words in flight to this side
  bool rc = false;      // the number is of an RC queue pair, which serves one peer
  uint8_t reads = 0;    // RC only: maximum READs in flight, in each direction

  bool operator==(const Address&) const = default;
};

}  // namespace sluice::onesided

#endif  // SLUICE_TRANSPORT_ONESIDED_ADDRESS_H_
