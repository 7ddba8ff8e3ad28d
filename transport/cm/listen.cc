// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {
namespace {

int ErrnoOf(int result) { return result == 0 ? 0 : (errno != 0 ? errno : EIO); }

// Returns an id that listens at `address`. If `*call` fails, sets `*error_number` and returns an empty id.
verbs::CmId ListenAt(const verbs::VerbsApi& api, rdma_event_channel* channel,
                     sockaddr_storage address, int backlog, const char** call, int* error_number) {
  rdma_cm_id* raw = nullptr;
  *call = "rdma_create_id";
  errno = 0;
  *error_number = ErrnoOf(api.cm_create_id(channel, &raw, nullptr, RDMA_PS_TCP));
  if (*error_number != 0) return {};
  verbs::CmId id(&api, raw);
  *call = "rdma_bind_addr";
  errno = 0;
  *error_number = ErrnoOf(api.cm_bind_addr(raw, reinterpret_cast<sockaddr*>(&address)));
  if (*error_number != 0) return {};
  *call = "rdma_listen";
  errno = 0;
  *error_number = ErrnoOf(api.cm_listen(raw, backlog));
  if (*error_number != 0) return {};
  return id;
}

void SetPort(uint16_t port, sockaddr_storage* address) {
  if (address->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(address)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(address)->sin_port = htons(port);
  }
}

absl::Status ListenError(int error_number, const char* call, const std::string& where) {
  if (error_number == EADDRINUSE) {
    return base::Error(
        absl::StatusCode::kAlreadyExists, "port is in use: can't listen at " + where,
        {.layer = "cm",
         .peer = where,
         .operation = "listen",
         .cause = "another process of this host listens on that port",
         .remedy = "stop that process, or choose another port (0 selects a free port)",
         .syndrome = EADDRINUSE});
  }
  return base::ErrnoError(error_number, "can't listen at " + where + ": " + call,
                          {.layer = "cm",
                           .peer = where,
                           .operation = "listen",
                           .cause = "the address does not belong to an RDMA device of this host",
                           .remedy = "listen at an address of an RDMA device, or at *"});
}

absl::Status PlaceError(const rdma_cm_id& id, const std::string& where) {
  const std::string other = PlaceOf(id.verbs->device->name, id.port_num);
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     "can't listen at " + where + ": it is an address of " + other,
                     {.layer = "cm",
                      .peer = where,
                      .operation = "listen",
                      .cause = "this process uses another device or port",
                      .remedy = "start with --device=" + other + ", or listen at *"});
}

}  // namespace

// Listens at each address of the name. The IPv6 wildcard address also receives IPv4 requests, so with "*" the IPv4 wildcard is needed only
// on a host without IPv6.
absl::StatusOr<uint16_t> ConnectionManager::Listen(const std::string& host, uint16_t port) {
  auto addresses = Resolve(host, port, /*passive=*/true);
  if (!addresses.ok()) return addresses.status();
  const std::string where = HostPort(host.empty() ? "*" : host, port);
  const bool any = host.empty() || host == "*";
  if (any) std::reverse(addresses->begin(), addresses->end());
  absl::Status first_error;
  uint16_t bound = 0;
  for (sockaddr_storage& address : *addresses) {
    if (bound != 0) SetPort(bound, &address);
    const char* call = "";
    int error_number = 0;
    verbs::CmId id =
        ListenAt(api_, channel_.get(), address, options_.backlog, &call, &error_number);
    if (error_number != 0) {
      if (first_error.ok()) first_error = ListenError(error_number, call, where);
      if (error_number == EADDRINUSE && bound == 0) break;  // not at the other addresses only
      continue;
    }
    if (!IsOurs(*id.get())) {
      if (first_error.ok()) first_error = PlaceError(*id.get(), where);
      continue;
    }
    bound = ntohs(api_.cm_get_src_port(id.get()));
    listeners_.push_back(std::move(id));
    if (any) break;
  }
  if (bound == 0) return first_error;
  return bound;
}

}  // namespace sluice::cm
