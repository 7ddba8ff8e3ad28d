// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/ticket.h"

#include <array>

#include "middleware/bulk/fields.h"
#include "middleware/bulk/passed_on.h"

namespace sluice::bulk {
namespace {

constexpr uint8_t kKind = 0xc2;
constexpr uint8_t kVersion = 2;
constexpr uint32_t kMaxQpNumber = 0xffffff;
constexpr uint32_t kMaxNotices = 1u << 14;

}  // namespace

// kind version 0(2) qp_number(4) port(8) gid(16) notices(4) dctn(4) access_key(8) place(4) window(4) token(8)
std::string ToBytes(const Ticket& ticket) {
  std::string bytes(kTicketBytes, '\0');
  Put(bytes.data(), 0, kKind);
  Put(bytes.data(), 1, kVersion);
  Put(bytes.data(), 4, ticket.qp_number);
  Put(bytes.data(), 8, ticket.port);
  Put(bytes.data(), 16, ticket.way.gid);
  Put(bytes.data(), 32, ticket.notices);
  Put(bytes.data(), 36, ticket.way.dctn);
  Put(bytes.data(), 40, ticket.way.access_key);
  Put(bytes.data(), 48, ticket.way.place);
  Put(bytes.data(), 52, ticket.way.window);
  Put(bytes.data(), 56, ticket.way.token);
  return bytes;
}

absl::StatusOr<Ticket> LoadTicket(std::string_view bytes) {
  constexpr std::string_view kWhat = "these bytes are no ticket";
  absl::Status status = CheckHead(bytes, kTicketBytes, kKind, kVersion, kWhat);
  if (!status.ok()) return status;
  Ticket ticket;
  ticket.qp_number = Get<uint32_t>(bytes.data(), 4);
  ticket.port = Get<uint64_t>(bytes.data(), 8);
  ticket.way.gid = Get<std::array<std::byte, 16>>(bytes.data(), 16);
  ticket.notices = Get<uint32_t>(bytes.data(), 32);
  ticket.way.dctn = Get<uint32_t>(bytes.data(), 36);
  ticket.way.access_key = Get<uint64_t>(bytes.data(), 40);
  ticket.way.place = Get<uint32_t>(bytes.data(), 48);
  ticket.way.window = Get<uint32_t>(bytes.data(), 52);
  ticket.way.token = Get<uint64_t>(bytes.data(), 56);
  if (ticket.port == 0) return NotPassedOn(kWhat, "it names nobody");
  const auto absurd = [](uint32_t number) { return number == 0 || number > kMaxQpNumber; };
  if (absurd(ticket.qp_number) || absurd(ticket.way.dctn)) {
    return NotPassedOn(kWhat, "its queue pair number is out of range");
  }
  if (ticket.notices == 0 || ticket.notices > kMaxNotices || ticket.way.window == 0 ||
      ticket.way.window > kMaxNotices) {
    return NotPassedOn(kWhat, "it takes no notices, or absurdly many");
  }
  if (ticket.way.token == 0) return NotPassedOn(kWhat, "it has no token");
  if (Get<uint16_t>(bytes.data(), 2) != 0) {
    return NotPassedOn(kWhat, "a reserved field is not zero");
  }
  return ticket;
}

}  // namespace sluice::bulk
