// SPDX-License-Identifier: Apache-2.0
//
// Connection: one server of a ClientEngine, and the connection to it.
//
// Purpose       The state of the connection (connection_state.h), the back-off between attempts, and messages that the server must get.
//               All connections of an engine share its endpoint: each costs as much as a peer, and no queue.
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

// Result of the last health check of a server (ClientEngineOptions::health_period_ns).
enum class Health : uint8_t { kUnknown, kServing, kNotServing };
struct HealthAsk;  // client_health.cc

struct Connection {
  Connection(ClientEngine* the_engine, ServerAddress the_address, uint32_t limit);
  ~Connection();

  ClientEngine* const engine;
  const ServerAddress address;
  const std::string server;  // "host:port"
  ConnectionState state = ConnectionState::kIdle;
  Health health = Health::kUnknown;  // since the connection came up
  bool left_out = false;             // gets no calls, because another server serves
  endpoint::PeerId peer;
  uint32_t limit_bytes;          // maximum size of a message, header included
  uint32_t eager_bytes = 0;      // maximum size of a message that is not lent
  uint32_t outstanding = 0;      // calls that were sent on it and have not ended
  uint32_t failed_attempts = 0;  // in a row
  // The last connection ended at the server's request (kFlagRest), and no attempt since then has failed for another reason than a
  // full server. Calls wait for such a connection, also without wait_for_ready.
  bool rests = false;
  bool given_up = false;  // its attempts were used up, and it has not been up since
  int64_t up_since_ns = 0;
  absl::StatusCode said = absl::StatusCode::kOk;  // last logged reason of a loss
  base::Timer backoff;
  std::unique_ptr<HealthAsk> ask;      // nullptr: no health check so far
  std::vector<uint64_t> cancels_owed;  // calls to cancel there when there is credit
  std::vector<uint64_t> blocked;       // numbers of calls whose streams wait for credit
  bool drain_owed = false;             // answer to its kDrain, sent when there is credit
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_CONNECTION_H_
