// SPDX-License-Identifier: Apache-2.0
//
// Errors for the events and timeouts of the connection manager.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "transport/base/error.h"
#include "transport/cm/connection.h"

namespace sluice::cm {
namespace {

// REJ reasons (IBTA 12.6.7.2, include/rdma/ib_cm.h).
constexpr int kNoResources = 3;
constexpr int kTimeout = 4;
constexpr int kNobodyListens = 8;
constexpr int kStale = 10;
constexpr int kByConsumer = 28;
constexpr int kByEce = 35;

absl::Status Unavailable(const std::string& what, std::string_view peer, const char* cause,
                         const char* remedy, int code) {
  return base::Error(absl::StatusCode::kUnavailable, what,
                     {.layer = "cm",
                      .peer = peer,
                      .operation = "connect",
                      .cause = cause,
                      .remedy = remedy,
                      .vendor_code = static_cast<uint32_t>(code < 0 ? -code : code),
                      .retry_safe = true});
}

std::string ErrnoName(int status) {
  const char* name = strerrorname_np(status < 0 ? -status : status);
  return name != nullptr ? name : std::to_string(status);
}

bool HasWords(const rdma_cm_event& event) {
  const auto* bytes = static_cast<const uint8_t*>(event.param.conn.private_data);
  return std::any_of(bytes, bytes + event.param.conn.private_data_len,
                     [](uint8_t byte) { return byte != 0; });
}

}  // namespace

absl::Status EndError(const rdma_cm_event& event, std::string_view peer, bool established) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
      return Unavailable(
          "address can't be reached by RDMA (" + ErrnoName(event.status) + ")", peer,
          "no RDMA device of this host has a route to it, or the host does not answer",
          "check the address, the route and the interface of the RDMA device", event.status);
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return Unavailable("no route to the peer (" + ErrnoName(event.status) + ")", peer,
                         "the fabric has no path from this port to the peer",
                         "check that both ports are on the same fabric", event.status);
    case RDMA_CM_EVENT_REJECTED:
      switch (event.status) {
        case kTimeout:
          return Unavailable("the peer ended the attempt to connect", peer,
                             "the answer of this side did not reach the peer in time",
                             "check whether one of the hosts is overloaded", event.status);
        case kNobodyListens:
          return Unavailable("connection refused", peer, "no process listens on that port",
                             "start the server, or check the port", event.status);
        case kStale:
          return Unavailable(
              "connection refused as stale", peer,
              "the peer still has a connection with this QP number, of a process that died",
              "retry: the next attempt uses another number", event.status);
        case kByConsumer:
          return Unavailable("connection refused by the server program", peer,
                             "the server has its maximum number of peers, is shutting down, or is "
                             "not a Sluice program",
                             "read the server's log", event.status);
        case kByEce:
          return Unavailable("connection refused over its ECE options", peer,
                             "the two devices have no congestion-control setting in common",
                             "compare `sluice_info` on both hosts", event.status);
        default:
          return Unavailable("connection refused with reason " + std::to_string(event.status), peer,
                             "see the reject reasons of InfiniBand's connection manager", "retry",
                             event.status);
      }
    case RDMA_CM_EVENT_UNREACHABLE:
      return Unavailable("peer does not answer", peer,
                         "the peer's host is down, or the path is broken",
                         "check the host and the fabric", event.status);
    case RDMA_CM_EVENT_CONNECT_ERROR:
      return Unavailable("connect failed (" + ErrnoName(event.status) + ")", peer,
                         "the device refused the connection's parameters", "retry", event.status);
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return Unavailable("the RDMA device was removed", peer,
                         "its driver was unloaded, or the card failed", "restart on another device",
                         event.status);
    case RDMA_CM_EVENT_DISCONNECTED:
      return Unavailable(established ? "peer disconnected" : "peer disconnected while connecting",
                         peer, "the peer's process ended, was killed, or closed the connection",
                         "reconnect when the peer is running again", event.status);
    default:
      return Unavailable("connection ended by event " + std::to_string(event.event), peer, "",
                         "retry", event.status);
  }
}

Verdict EndVerdict(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return event.status == -ETIMEDOUT ? Verdict::kAgain : Verdict::kElsewhere;
    case RDMA_CM_EVENT_UNREACHABLE:
      return event.status == -ETIMEDOUT ? Verdict::kAgain : Verdict::kElsewhere;
    case RDMA_CM_EVENT_REJECTED:
      switch (event.status) {
        case kNoResources:
          return Verdict::kAgain;
        case kNobodyListens:
          return Verdict::kElsewhere;
        case kStale:
          return Verdict::kStale;
        case kByConsumer:
          // A program that refuses a request sends the reason. Without a reason, it had no free record, or it died.
          return HasWords(event) ? Verdict::kFinal : Verdict::kAgain;
        default:
          return Verdict::kFinal;
      }
    default:
      return Verdict::kFinal;
  }
}

absl::Status ConnectionManager::DeadlineError(const Connection& c) const {
  std::string cause;
  const char* remedy = "check the host, or allow more time";
  switch (c.state) {
    case State::kResolvingName:
      cause = "the name server is slow or silent";
      remedy = "use a numeric address, or check the name service";
      break;
    case State::kResolvingAddress:
    case State::kResolvingRoute:
      cause = "the host does not answer on the network (no neighbour entry)";
      break;
    case State::kConnecting:
      cause = "the host is down, or the server listens but does not accept requests";
      remedy = "check whether the server process hangs, or allow more time";
      break;
    case State::kAccepting:
      cause = "the client ended after its request, or its answer was lost";
      remedy = "none: a running client repeats its request";
      break;
    case State::kBackingOff:
      cause = "the next attempt would have started after the deadline";
      break;
    default:
      cause = "this process was too slow to answer";
      break;
  }
  std::string what = "connect timed out while " + std::string(Name(c.state));
  if (c.attempt() != nullptr && c.attempt()->tries > 1) {
    what += ", in attempt " + std::to_string(c.attempt()->tries);
  }
  if (c.attempt() != nullptr && !c.attempt()->last.ok()) {
    cause += "; the previous attempt failed: " + std::string(c.attempt()->last.message());
  }
  return base::Error(absl::StatusCode::kDeadlineExceeded, what,
                     {.layer = "cm",
                      .peer = c.peer,
                      .operation = "connect",
                      .cause = cause,
                      .remedy = remedy,
                      .retry_safe = true});
}

absl::Status ConnectionManager::CommandError(const Connection& c, int error_number,
                                             const char* call) const {
  return base::ErrnoError(error_number, call,
                          {.layer = "cm",
                           .peer = c.peer,
                           .operation = c.active ? "connect" : "accept",
                           .cause = c.active ? "the address or the device is not usable for RDMA_CM"
                                             : "the client disconnected before the answer",
                           .remedy = "check `sluice_info`, then retry",
                           .retry_safe = true});
}

}  // namespace sluice::cm
