// SPDX-License-Identifier: Apache-2.0
//
// The record of one connection. Private to transport/cm.
//
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_CM_CONNECTION_H_
#define SLUICE_TRANSPORT_CM_CONNECTION_H_

#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/shared_text.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {

// A query to the name service. The attempt owns it. The thread that resolves the name shares it during the query, which may last longer
// than the attempt.
struct Lookup {
  std::string host;
  uint16_t port = 0;
  // Written by the resolving thread. Valid after the query.
  absl::StatusOr<std::vector<sockaddr_storage>> addresses;
};

// State of an attempt to connect. Freed when the connection is up.
struct Attempt {
  int64_t deadline_ns = 0;  // of all tries together
  std::string host;
  uint16_t port = 0;
  std::vector<sockaddr_storage> addresses;
  size_t next_address = 0;
  std::shared_ptr<Lookup> lookup;
  uint32_t tries = 0;
  uint32_t stale_rejects = 0;
  int64_t pause_ns = 0;  // before the next try
  bool has_turn = false;
  bool by_request = false;  // the server requested the attempt: the next try is not paced
  absl::Status last;        // error of the last try

  PathInfo path;
  ibv_ece answer_ece = {};
  std::array<std::byte, kMaxResponseData> outgoing = {};
  size_t outgoing_bytes = 0;
  std::vector<std::byte> incoming;  // last received private data
};

// State of a connection that connects or disconnects. Does not exist while the connection is up.
struct ConnectionManager::Passage {
  ConnectionManager* manager = nullptr;
  base::Timer timer;
  absl::Status why;                  // reason of the end
  int64_t hold_until_ns = 0;         // end of the quarantine of the number; 0: not known yet
  std::unique_ptr<Attempt> attempt;  // null after the connection was up
};

// Each idle peer has a record of this type, so it must be small.
struct ConnectionManager::Connection {
  // While a command is in flight, the members of `*id`, `qpn` and the attempt belong to the command. The polling thread changes nothing
  // that the command uses, and reads nothing that the command changes.
  rdma_cm_id* id = nullptr;
  std::unique_ptr<Passage> passage;
  base::SharedText peer;  // "host:port" of Connect(), or the source address
  uint32_t index = 0;
  uint32_t generation = 0;
  uint32_t qpn = 0;
  uint16_t commands = 0;  // commands in flight
  State state = State::kIdle;
  bool active : 1 = false;
  bool qpn_exposed : 1 = false;  // the peer may know the number
  bool closed : 1 = false;       // the user gets no further callbacks
  bool leaving : 1 = false;      // counted in leaving_
  bool notified : 1 = false;
  bool destroy_waits : 1 = false;  // for the commands in flight
  bool release_waits : 1 = false;  // likewise

  Attempt* attempt() const { return passage == nullptr ? nullptr : passage->attempt.get(); }
  ConnectionId id_of() const { return {index, generation}; }
  void* context() const {
    return reinterpret_cast<void*>((uint64_t{generation} << 32) | (index + uint64_t{1}));
  }
};

// How to continue after a failed try.
enum class Verdict : uint8_t {
  kFinal,      // do not retry: the answer would be the same
  kElsewhere,  // do not retry this address; try the next address of the name, if any
  kAgain,      // retry: the peer did not answer, or had a temporary shortage
  kStale,      // retry with a new number: the peer still knows the old number
};

// Returns the error for a CM event that ends a connection or an attempt.
absl::Status EndError(const rdma_cm_event& event, std::string_view peer, bool established);
Verdict EndVerdict(const rdma_cm_event& event);

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_H_
