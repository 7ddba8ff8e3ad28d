// SPDX-License-Identifier: Apache-2.0
#include "middleware/bulk/capability.h"

#include "middleware/bulk/fields.h"
#include "transport/base/error.h"

namespace sluice::bulk {
namespace {

constexpr uint8_t kVersion = 1;
constexpr uint8_t kCapabilityKind = 0xc1;
constexpr uint8_t kTicketKind = 0xc2;
constexpr uint32_t kMaxQpNumber = 0xffffff;
constexpr uint32_t kMaxNotices = 1u << 14;

absl::Status Refused(std::string_view what, std::string_view cause) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, what,
      {.layer = "bulk",
       .operation = "load",
       .cause = cause,
       .remedy = "pass on the bytes of the other side as they are, between programs of "
                 "the same release of Sluice"});
}

// kind(1) version(1) and two bytes of its own.
absl::Status CheckHead(std::string_view bytes, size_t size, uint8_t kind, std::string_view what) {
  if (bytes.size() != size) return Refused(what, "it has another length");
  if (Get<uint8_t>(bytes.data(), 0) != kind) return Refused(what, "it is something else");
  if (Get<uint8_t>(bytes.data(), 1) != kVersion) return Refused(what, "it is of another version");
  return absl::OkStatus();
}

}  // namespace

// kind version rights(1) 0(1) lease(4) port(8) address(8) length(8) key(4) epoch(4) 0(8)
std::string ToBytes(const Capability& capability) {
  std::string bytes(kCapabilityBytes, '\0');
  Put(bytes.data(), 0, kCapabilityKind);
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
  absl::Status status = CheckHead(bytes, kCapabilityBytes, kCapabilityKind, kWhat);
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
    return Refused(kWhat, "its rights are none that there are");
  }
  if (capability.port == 0 || capability.epoch == 0) return Refused(kWhat, "it names nobody");
  if (capability.length_bytes == 0 ||
      capability.address + capability.length_bytes < capability.address) {
    return Refused(kWhat, "its range is none");
  }
  if (Get<uint8_t>(bytes.data(), 3) != 0 || Get<uint64_t>(bytes.data(), 40) != 0) {
    return Refused(kWhat, "a reserved field is not zero");
  }
  return capability;
}

// kind version 0(2) qp_number(4) port(8) gid(16) notices(4) 0(4)
std::string ToBytes(const Ticket& ticket) {
  std::string bytes(kTicketBytes, '\0');
  Put(bytes.data(), 0, kTicketKind);
  Put(bytes.data(), 1, kVersion);
  Put(bytes.data(), 4, ticket.qp_number);
  Put(bytes.data(), 8, ticket.port);
  Put(bytes.data(), 16, ticket.gid);
  Put(bytes.data(), 32, ticket.notices);
  return bytes;
}

absl::StatusOr<Ticket> LoadTicket(std::string_view bytes) {
  constexpr std::string_view kWhat = "these bytes are no ticket";
  absl::Status status = CheckHead(bytes, kTicketBytes, kTicketKind, kWhat);
  if (!status.ok()) return status;
  Ticket ticket;
  ticket.qp_number = Get<uint32_t>(bytes.data(), 4);
  ticket.port = Get<uint64_t>(bytes.data(), 8);
  ticket.gid = Get<std::array<std::byte, 16>>(bytes.data(), 16);
  ticket.notices = Get<uint32_t>(bytes.data(), 32);
  if (ticket.port == 0) return Refused(kWhat, "it names nobody");
  if (ticket.qp_number == 0 || ticket.qp_number > kMaxQpNumber) {
    return Refused(kWhat, "its queue pair number is out of range");
  }
  if (ticket.notices == 0 || ticket.notices > kMaxNotices) {
    return Refused(kWhat, "it takes no notices, or absurdly many");
  }
  if (Get<uint16_t>(bytes.data(), 2) != 0 || Get<uint32_t>(bytes.data(), 36) != 0) {
    return Refused(kWhat, "a reserved field is not zero");
  }
  return ticket;
}

}  // namespace sluice::bulk
