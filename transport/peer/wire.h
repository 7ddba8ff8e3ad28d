// SPDX-License-Identifier: Apache-2.0
//
// Little-endian fields in byte arrays.
#ifndef SLUICE_TRANSPORT_PEER_WIRE_H_
#define SLUICE_TRANSPORT_PEER_WIRE_H_

#include <bit>
#include <cstddef>
#include <cstring>

namespace sluice::peer {

static_assert(std::endian::native == std::endian::little,
              "the wire is little endian, and so are all hosts that mlx5 devices are used in");

template <typename T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

template <typename T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(value));
}

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_WIRE_H_
