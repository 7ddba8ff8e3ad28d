// SPDX-License-Identifier: Apache-2.0
#include <netinet/in.h>

#include <cerrno>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {
namespace {

int ErrnoOf(int result) { return result == 0 ? 0 : (errno != 0 ? errno : EIO); }

}  // namespace

absl::StatusOr<uint16_t> ConnectionManager::Listen(const std::string& host, uint16_t port) {
  auto addresses = Resolve(host, port, /*passive=*/true);
  if (!addresses.ok()) return addresses.status();
  const std::string where = HostPort(host.empty() ? "*" : host, port);
  rdma_cm_id* raw = nullptr;
  errno = 0;
  int error_number = ErrnoOf(api_.cm_create_id(channel_.get(), &raw, nullptr, RDMA_PS_TCP));
  if (error_number != 0) {
    return base::ErrnoError(error_number, "rdma_create_id", {.layer = "cm", .peer = where});
  }
  verbs::CmId id(&api_, raw);
  const char* call = "rdma_bind_addr";
  errno = 0;
  error_number = ErrnoOf(api_.cm_bind_addr(raw, reinterpret_cast<sockaddr*>(&addresses->front())));
  if (error_number == 0) {
    call = "rdma_listen";
    errno = 0;
    error_number = ErrnoOf(api_.cm_listen(raw, options_.backlog));
  }
  if (error_number == EADDRINUSE) {
    return base::Error(absl::StatusCode::kAlreadyExists, "port is in use: can't listen at " + where,
                       {.layer = "cm",
                        .peer = where,
                        .operation = "listen",
                        .cause = "another process of this host listens there",
                        .remedy = "stop it, or choose another port (0 takes a free one)",
                        .syndrome = EADDRINUSE});
  }
  if (error_number != 0) {
    return base::ErrnoError(error_number, std::string("can't listen at ") + where + ": " + call,
                            {.layer = "cm",
                             .peer = where,
                             .operation = "listen",
                             .cause = "the address does not belong to an RDMA device of this host",
                             .remedy = "listen at one of its addresses, or at *"});
  }
  const uint16_t bound = ntohs(api_.cm_get_src_port(raw));
  listeners_.push_back(std::move(id));
  return bound;
}

}  // namespace sluice::cm
