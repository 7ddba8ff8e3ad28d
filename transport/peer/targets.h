// SPDX-License-Identifier: Apache-2.0
//
// Targets: the DCTs of the sender's tenant from now on. In a control message, after its prefix. Little endian.
//
//     0  u32  data DCTN (24 bit)
//     4  u32  control DCTN (24 bit)
//     8  u64  data DC key
//    16  u64  control DC key
#ifndef SLUICE_TRANSPORT_PEER_TARGETS_H_
#define SLUICE_TRANSPORT_PEER_TARGETS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/peer/wire.h"

namespace sluice::peer {

struct TenantTargets {
  uint32_t data_dctn = 0;
  uint32_t control_dctn = 0;
  uint64_t data_key = 0;
  uint64_t control_key = 0;

  friend bool operator==(const TenantTargets&, const TenantTargets&) = default;
};
inline constexpr size_t kTargetsBytes = 24;
inline constexpr uint32_t kTargetsMaxDctn = (1u << 24) - 1;

inline std::array<std::byte, kTargetsBytes> EncodeTargets(const TenantTargets& targets) {
  std::array<std::byte, kTargetsBytes> bytes;
  Store(bytes.data(), targets.data_dctn);
  Store(bytes.data() + 4, targets.control_dctn);
  Store(bytes.data() + 8, targets.data_key);
  Store(bytes.data() + 16, targets.control_key);
  return bytes;
}

// Returns nullopt if the length or a number is invalid.
inline std::optional<TenantTargets> DecodeTargets(std::span<const std::byte> bytes) {
  if (bytes.size() != kTargetsBytes) return std::nullopt;
  const TenantTargets targets{.data_dctn = Load<uint32_t>(bytes.data()),
                              .control_dctn = Load<uint32_t>(bytes.data() + 4),
                              .data_key = Load<uint64_t>(bytes.data() + 8),
                              .control_key = Load<uint64_t>(bytes.data() + 16)};
  const auto sound = [](uint32_t dctn) { return dctn != 0 && dctn <= kTargetsMaxDctn; };
  if (!sound(targets.data_dctn) || !sound(targets.control_dctn)) return std::nullopt;
  return targets;
}

}  // namespace sluice::peer

#endif  // SLUICE_TRANSPORT_PEER_TARGETS_H_
