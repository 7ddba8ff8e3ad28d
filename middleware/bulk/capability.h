// SPDX-License-Identifier: Apache-2.0
//
// Capability: grants access to lent memory: location, size, rights, and the key that the lender's
// device checks. It is sent as bytes in any message.
//
// Ownership     A value. All copies are valid until the lender returns the lease or the lease
//               expires.
// Threads       Any: values and pure functions.
// Errors        LoadCapability() checks bytes from a peer.
#ifndef SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_
#define SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::bulk {

// Rights of peers, as bits. 0: only transfers of this side use the memory.
inline constexpr uint8_t kMayRead = 1;
inline constexpr uint8_t kMayWrite = 2;

struct LeaseId {
  uint32_t index = 0;
  uint32_t epoch = 0;  // 0 never names a lease

  friend bool operator==(const LeaseId&, const LeaseId&) = default;
};

struct Capability {
  uint64_t port = 0;  // port number of the lender; never 0
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  uint32_t key = 0;
  uint32_t lease = 0;
  uint32_t epoch = 0;  // distinguishes leases with the same index; never 0
  uint8_t rights = 0;  // kMayRead, kMayWrite or both

  bool operator==(const Capability&) const = default;
};

inline constexpr size_t kCapabilityBytes = 48;
std::string ToBytes(const Capability& capability);
// Reads and checks a capability. INVALID_ARGUMENT: the bytes are not a valid capability of this version.
absl::StatusOr<Capability> LoadCapability(std::string_view bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_
