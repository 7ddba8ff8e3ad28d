// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/ticket.h"

#include <array>

#include "middleware/bulk/fields.h"
#include "middleware/bulk/passed_on.h"

namespace sluice::bulk {
namespace {

constexpr uint8_t kKind = 0xc2;
constexpr uint8_t kVersion = 3;
constexpr uint32_t kMaxNumber = 0xffffff;
constexpr uint16_t kRc = 1;  // flag: the number is of an RC queue pair
constexpr uint32_t kMaxWindow = 1u << 14;

}  // namespace

// kind version flags(2) place(4) port(8) gid(16) number(4) window(4) access_key(8) token(8)
// piece_bytes(4) lid(2) reads(1) 0(1)
std::string ToBytes(const Ticket& ticket) {
  std::string bytes(kTicketBytes, '\0');
  Put(bytes.data(), 0, kKind);
  Put(bytes.data(), 1, kVersion);
  Put(bytes.data(), 2, ticket.way.rc ? kRc : uint16_t{0});
  Put(bytes.data(), 4, ticket.way.place);
  Put(bytes.data(), 8, ticket.port);
  Put(bytes.data(), 16, ticket.way.gid);
  Put(bytes.data(), 32, ticket.way.dctn);
  Put(bytes.data(), 36, ticket.way.window);
  Put(bytes.data(), 40, ticket.way.access_key);
  Put(bytes.data(), 48, ticket.way.token);
  Put(bytes.data(), 56, ticket.piece_bytes);
  Put(bytes.data(), 60, ticket.way.lid);
  Put(bytes.data(), 62, ticket.way.reads);
  return bytes;
}

absl::StatusOr<Ticket> LoadTicket(std::string_view bytes) {
  constexpr std::string_view kWhat = "these bytes are no ticket";
  absl::Status status = CheckHead(bytes, kTicketBytes, kKind, kVersion, kWhat);
  if (!status.ok()) return status;
  const auto flags = Get<uint16_t>(bytes.data(), 2);
  Ticket ticket;
  ticket.way.rc = flags == kRc;
  ticket.way.place = Get<uint32_t>(bytes.data(), 4);
  ticket.port = Get<uint64_t>(bytes.data(), 8);
  ticket.way.gid = Get<std::array<std::byte, 16>>(bytes.data(), 16);
  ticket.way.dctn = Get<uint32_t>(bytes.data(), 32);
  ticket.way.window = Get<uint32_t>(bytes.data(), 36);
  ticket.way.access_key = Get<uint64_t>(bytes.data(), 40);
  ticket.way.token = Get<uint64_t>(bytes.data(), 48);
  ticket.piece_bytes = Get<uint32_t>(bytes.data(), 56);
  ticket.way.lid = Get<uint16_t>(bytes.data(), 60);
  ticket.way.reads = Get<uint8_t>(bytes.data(), 62);
  if (ticket.port == 0 || ticket.way.token == 0) return NotPassedOn(kWhat, "it names no peer");
  if (ticket.way.dctn == 0 || ticket.way.dctn > kMaxNumber) {
    return NotPassedOn(kWhat, "its queue pair number is out of range");
  }
  if (ticket.way.window == 0 || ticket.way.window > kMaxWindow) {
    return NotPassedOn(kWhat, "it takes no words, or absurdly many");
  }
  if (ticket.piece_bytes == 0 || ticket.piece_bytes % 4096 != 0 ||
      ticket.piece_bytes > kMaxPieceBytes) {
    return NotPassedOn(kWhat, "its pieces are no whole blocks of 4096 bytes, or absurdly large");
  }
  if (flags > kRc || Get<uint8_t>(bytes.data(), 63) != 0) {
    return NotPassedOn(kWhat, "a reserved field is not zero");
  }
  if (ticket.way.rc != (ticket.way.reads != 0)) {
    return NotPassedOn(kWhat, "it has a number of READs without RC, or RC without one");
  }
  return ticket;
}

}  // namespace sluice::bulk
