// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/capability.h"

#include "middleware/bulk/fields.h"
#include "middleware/bulk/passed_on.h"

namespace sluice::bulk {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kKind = 0xc1;

}  // namespace

// kind version rights(1) 0(1) lease(4) port(8) address(8) length(8) key(4) epoch(4) 0(8)
std::string ToBytes(const Capability& capability) {
  std::string bytes(kCapabilityBytes, '\0');
  Put(bytes.data(), 0, kKind);
  Put(bytes.data(), 1, kVersion);
  Put(bytes.data(), 2, capability.rights);
  Put(bytes.data(), 4, capability.lease);
  Put(bytes.data(), 8, capability.port);
  Put(bytes.data(), 16, capability.address);
  Put(bytes.data(), 24, capability.length_bytes);
  Put(bytes.data(), 32, capability.key);
  Put(bytes.data(), 36, capability.epoch);
  return bytes;
}

absl::StatusOr<Capability> LoadCapability(std::string_view bytes) {
  constexpr std::string_view kWhat = "these bytes are no capability";
  absl::Status status = CheckHead(bytes, kCapabilityBytes, kKind, kVersion, kWhat);
  if (!status.ok()) return status;
  Capability capability;
  capability.rights = Get<uint8_t>(bytes.data(), 2);
  capability.lease = Get<uint32_t>(bytes.data(), 4);
  capability.port = Get<uint64_t>(bytes.data(), 8);
  capability.address = Get<uint64_t>(bytes.data(), 16);
  capability.length_bytes = Get<uint64_t>(bytes.data(), 24);
  capability.key = Get<uint32_t>(bytes.data(), 32);
  capability.epoch = Get<uint32_t>(bytes.data(), 36);
  if (capability.rights == 0 || capability.rights > (kMayRead | kMayWrite)) {
    return NotPassedOn(kWhat, "its rights are none that there are");
  }
  if (capability.port == 0 || capability.epoch == 0) return NotPassedOn(kWhat, "it names no peer");
  if (capability.length_bytes == 0 ||
      capability.address + capability.length_bytes < capability.address) {
    return NotPassedOn(kWhat, "its range is none");
  }
  if (Get<uint8_t>(bytes.data(), 3) != 0 || Get<uint64_t>(bytes.data(), 40) != 0) {
    return NotPassedOn(kWhat, "a reserved field is not zero");
  }
  return capability;
}

}  // namespace sluice::bulk
