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

// A question to the name service. Its attempt owns it, and whoever is asking, while that lasts: who
// asks may be held up for longer than the attempt lives.
struct Lookup {
  std::string host;
  uint16_t port = 0;
  absl::StatusOr<std::vector<sockaddr_storage>> addresses;  // of whoever asks, until it has ended
};

// What making a connection needs beyond what keeping it does; gone once it is up.
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
  bool by_request = false;  // of the server: the next try is not paced
  absl::Status last;        // what ended the last try

  PathInfo path;
  ibv_ece answer_ece = {};
  std::array<std::byte, kMaxResponseData> outgoing = {};
  size_t outgoing_bytes = 0;
  std::vector<std::byte> incoming;  // the last private data that came
};

// What a connection needs on its way up and on its way out; there is none while it is up.
struct ConnectionManager::Passage {
  ConnectionManager* manager = nullptr;
  base::Timer timer;
  absl::Status why;                  // of the end
  int64_t hold_until_ns = 0;         // the number, once goodbye is said; 0 before
  std::unique_ptr<Attempt> attempt;  // on its way up
};

// Every idle peer has one: kept small.
struct ConnectionManager::Connection {
  // The id's own members, the number and the attempt belong to a command while one is under way:
  // the polling thread then leaves them alone.
  rdma_cm_id* id = nullptr;
  std::unique_ptr<Passage> passage;
  base::SharedText peer;  // "host:port" as asked for, or the source address
  uint32_t index = 0;
  uint32_t generation = 0;
  uint32_t qpn = 0;
  uint16_t commands = 0;  // under way
  State state = State::kIdle;
  bool active : 1 = false;
  bool qpn_exposed : 1 = false;  // the other side may know the number
  bool closed : 1 = false;       // by its user: no more calls to it
  bool leaving : 1 = false;  // counted among those that keep their number for a closed connection
  bool notified : 1 = false;
  bool destroy_waits : 1 = false;  // for the commands under way
  bool release_waits : 1 = false;  // likewise

  Attempt* attempt() const { return passage == nullptr ? nullptr : passage->attempt.get(); }
  ConnectionId id_of() const { return {index, generation}; }
  void* context() const {
    return reinterpret_cast<void*>((uint64_t{generation} << 32) | (index + uint64_t{1}));
  }
};

// What is left to do after the end of a try.
enum class Verdict : uint8_t {
  kFinal,      // an answer that another try would only hear again
  kElsewhere,  // final for this address, but the name may have others
  kAgain,      // silence, or a passing shortage
  kStale,      // the number is to blame: a fresh one at once
};

// What a CM event that ends a connection (or an attempt) says about it.
absl::Status EndError(const rdma_cm_event& event, std::string_view peer, bool established);
Verdict EndVerdict(const rdma_cm_event& event);

}  // namespace sluice::cm

#endif  // SLUICE_TRANSPORT_CM_CONNECTION_H_
