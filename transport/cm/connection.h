// SPDX-License-Identifier: Apache-2.0
//
// The record of one connection. Private to transport/cm.
#ifndef SLUICE_TRANSPORT_CM_CONNECTION_H_
#define SLUICE_TRANSPORT_CM_CONNECTION_H_

#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

#include "transport/cm/connection_manager.h"

namespace sluice::cm {

struct ConnectionManager::Connection {
  ConnectionManager* manager = nullptr;
  uint32_t index = 0;
  uint32_t generation = 0;
  State state = State::kIdle;
  bool active = false;

  // While a command is under way these belong to it, and the polling thread leaves them alone.
  rdma_cm_id* id = nullptr;
  uint32_t qpn = 0;
  PathInfo path;
  std::vector<sockaddr_storage> addresses;
  size_t next_address = 0;
  absl::Status resolve_status;
  ibv_ece answer_ece = {};

  std::string host;
  uint16_t port = 0;
  std::string peer;  // "host:port" as asked for, or the source address
  std::array<std::byte, kMaxResponseData> outgoing = {};
  size_t outgoing_bytes = 0;
  std::vector<std::byte> incoming;  // the last private data that came

  bool qpn_exposed = false;  // the other side may know the number
  bool timewait_over = false;
  bool retried_stale = false;
  bool closed = false;  // by its user: no more calls to it
  absl::Status why;     // of the end
  int commands = 0;     // under way
  bool destroy_waits = false;
  base::Timer deadline;

  ConnectionId id_of() const { return {index, generation}; }
  void* context() const {
    return reinterpret_cast<void*>((uint64_t{generation} << 32) | (index + uint64_t{1}));
  }
};

// What a CM event that ends a connection (or an attempt) says about it.
absl::Status EndError(const rdma_cm_event& event, const std::string& peer, bool established);

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_H_
