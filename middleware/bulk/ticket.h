// SPDX-License-Identifier: Apache-2.0
//
// Ticket: the address of a port for another port, as bytes in any message. Two tickets join two ports (port.h).
//
// Threads       Any: values and pure functions.
// Errors        LoadTicket() checks bytes from a peer.
#ifndef SLUICE_MIDDLEWARE_BULK_TICKET_H_
#define SLUICE_MIDDLEWARE_BULK_TICKET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/onesided/address.h"

namespace sluice::bulk {

struct Ticket {
  uint64_t port = 0;
  // Maximum size of a piece of a protected transfer that this port accepts, in bytes of data; whole blocks of 4096.
  uint32_t piece_bytes = 0;
  onesided::Address way;

  bool operator==(const Ticket&) const = default;
};

inline constexpr size_t kTicketBytes = 64;
inline constexpr uint32_t kMaxPieceBytes = 1u << 30;
std::string ToBytes(const Ticket& ticket);
// Reads and checks a ticket. INVALID_ARGUMENT: the bytes are not a valid ticket of this version.
absl::StatusOr<Ticket> LoadTicket(std::string_view bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_TICKET_H_
