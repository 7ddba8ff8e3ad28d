// SPDX-License-Identifier: Apache-2.0
//
// Connection: one server of a ClientEngine, and the connection to it.
//
// Purpose       The state of the connection (connection_state.h), the back-off between attempts, and reports that the server must get.
//               All connections of an engine share its endpoint: one more costs as much as a peer, and no queue.
// Ownership     ClientEngine. Calls that were sent over it refer to it until they end.
// Threads       The engine's.
// End           With the engine, or after SetServers() without this server, when its calls have ended.
#ifndef SLUICE_MIDDLEWARE_CALL_CONNECTION_H_
#define SLUICE_MIDDLEWARE_CALL_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "middleware/call/connection_state.h"
#include "transport/base/timer_wheel.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::call {

class ClientEngine;

struct ServerAddress {
  std::string host;
  uint16_t port = 0;
  friend bool operator==(const ServerAddress&, const ServerAddress&) = default;
};

// What a server says of itself, where it is asked (ClientEngineOptions::health_period_ns).
enum class Health : uint8_t { kUnknown, kServing, kNotServing };
struct HealthAsk;  // client_health.cc

struct Connection {
  Connection(ClientEngine* the_engine, ServerAddress the_address, uint32_t limit);
  ~Connection();

  ClientEngine* const engine;
  const ServerAddress address;
  const std::string server;  // "host:port"
  ConnectionState state = ConnectionState::kIdle;
  Health health = Health::kUnknown;  // since it is up
  bool left_out = false;             // others get the calls: they say that they serve
  endpoint::PeerId peer;
  uint32_t limit_bytes;          // of a message, header included
  uint32_t eager_bytes = 0;      // of one that is sent as it is
  uint32_t outstanding = 0;      // calls that were sent over it and have not ended
  uint32_t failed_attempts = 0;  // in a row
  int64_t up_since_ns = 0;
  absl::StatusCode said = absl::StatusCode::kOk;  // why it is down, as the log was told last
  base::Timer backoff;
  std::unique_ptr<HealthAsk> ask;      // nullptr: it has not been asked yet
  std::vector<uint64_t> cancels_owed;  // it is to hear of them when there is credit
  std::vector<uint64_t> blocked;       // streams that wait for credit, by call
  bool drain_owed = false;             // it is to hear that no more requests follow
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CONNECTION_H_
