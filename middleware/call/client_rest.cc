// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: connections that rest. A server at its cap of RC queue pairs asks its idle clients to leave (kFlagRest). This side alone
// knows whether a request has crossed that message. So this side decides: it disconnects, or it ignores the message (decision 0068).
#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/call/client_engine.h"

namespace sluice::call {

// Returns whether the connection has nothing to lose. Every request that was sent on it has ended, so no reply is expected. Waiting
// calls and cancellations may be about to be sent. If another server is up and unhealthy, the only one that serves keeps its
// connection: otherwise calls would go to the unhealthy one.
bool ClientEngine::MayRest(const Connection& connection) const {
  if (connection.state != ConnectionState::kUp || connection.outstanding != 0 ||
      !connection.cancels_owed.empty() || table_.waiting() != 0) {
    return false;
  }
  bool unhealthy = false;
  for (const auto& one : connections_) {
    if (one.get() == &connection || one->state != ConnectionState::kUp) continue;
    if (one->health == Health::kServing) return true;
    unhealthy = unhealthy || one->health == Health::kNotServing;
  }
  return !unhealthy;
}

// Disconnects an idle connection at the request of its server. This is no loss: it is not counted, and no back-off follows. The next
// call connects.
void ClientEngine::Rest(Connection* connection) {
  if (!MayRest(*connection)) return;
  if (now_is_stale_) RefreshNow();
  const endpoint::PeerId peer = std::exchange(connection->peer, endpoint::PeerId());
  Trace(observe::TraceEvent::kPeerDown, 0, 0, peer.index);
  by_peer_[peer.index] = nullptr;
  connection->blocked.clear();
  connection->failed_attempts = 0;
  connection->rests = some_rest_ = true;
  Move(connection, ConnectionEvent::kRest);
  ForgetHealth(connection);
  log_.Say(base::Severity::kInfo, "connection rests", connection->server,
           absl::StrCat(connection->server,
                        " needs the connection for another client; the next call connects again"));
  endpoint_->Disconnect(peer);
}

// Returns whether the connection rests and would get no calls, because a server before it gets them. One that is only connecting does
// not count: its attempt may fail, and calls would have waited for nothing.
bool ClientEngine::StaysAtRest(size_t index) const {
  return connections_[index]->rests && options_.balancing == Balancing::kPickFirst &&
         std::any_of(connections_.begin(),
                     connections_.begin() + static_cast<std::ptrdiff_t>(index),
                     [](const auto& one) {
                       return MayGetCalls(*one) && one->health != Health::kNotServing;
                     });
}

void ClientEngine::DialIdle() {
  if (some_rest_) DialResting();
  if (some_given_up_ && now_ns_ >= redial_ns_) DialGivenUp();
}

// Of several servers: lets the next Poll() connect to those that rest and would get calls.
void ClientEngine::DialResting() {
  some_rest_ = false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!connections_[i]->rests || connections_[i]->state != ConnectionState::kIdle) continue;
    some_rest_ = true;
    if (!StaysAtRest(i)) dial_wanted_ = true;
  }
}

}  // namespace sluice::call
