// SPDX-License-Identifier: Apache-2.0
//
// Capability: what a lender of memory gives away, as bytes in any message: where it is, how much, what may be done with it, and the
// key that the lender's device asks for. It is good until the lender takes the lease back or its time is over, whatever copies of
// it there are.
//
// Thread-safety: values and pure functions. What came from outside is checked by Load…().
#ifndef SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_
#define SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sluice::bulk {

// Bits of a lease's rights: those of others. None: the memory is for transfers of one's own.
inline constexpr uint8_t kMayRead = 1;
inline constexpr uint8_t kMayWrite = 2;

struct LeaseId {
  uint32_t index = 0;
  uint32_t epoch = 0;  // 0 never names a lease

  friend bool operator==(const LeaseId&, const LeaseId&) = default;
};

struct Capability {
  uint64_t port = 0;  // the lender's; never 0
  uint64_t address = 0;
  uint64_t length_bytes = 0;
  uint32_t key = 0;
  uint32_t lease = 0;
  uint32_t epoch = 0;  // of the lease's place; never 0
  uint8_t rights = 0;  // at least one

  bool operator==(const Capability&) const = default;
};

inline constexpr size_t kCapabilityBytes = 48;
std::string ToBytes(const Capability& capability);
// INVALID_ARGUMENT: no capability, or of another version.
absl::StatusOr<Capability> LoadCapability(std::string_view bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_CAPABILITY_H_
