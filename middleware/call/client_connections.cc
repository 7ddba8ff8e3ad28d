// SPDX-License-Identifier: Apache-2.0
//
// ClientEngine: the list of servers, and the connections to them.
#include <algorithm>
#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "middleware/call/client_engine.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace {

// A connection that was up for this time was stable: after its loss, the back-off starts from its beginning.
constexpr int64_t kStableNs = 1'000'000'000;
constexpr uint32_t kMaxBackoffDoublings = 20;
// Calls wait for a connection that rests while this many attempts in a row are refused by a full server: some 5 s with the default
// back-off.
constexpr uint32_t kMostRefusals = 8;

}  // namespace

void ClientEngine::Move(Connection* connection, ConnectionEvent event) {
  [[maybe_unused]] const bool legal =
      NextConnectionState(connection->state, event, &connection->state);
  assert(legal);
  connection->engine->NoteState();
}

void ClientEngine::SetServers(const std::vector<ServerAddress>& servers) {
  if (closed_) return;
  servers_changed_ = true;
  std::vector<std::unique_ptr<Connection>> before = std::exchange(connections_, {});
  for (const ServerAddress& address : servers) {
    const auto same = [&address](const auto& one) {
      return one != nullptr && one->address == address;
    };
    // A server that is listed twice is added once.
    if (std::any_of(connections_.begin(), connections_.end(), same)) continue;
    const auto found = std::find_if(before.begin(), before.end(), same);
    if (found != before.end()) {
      connections_.push_back(std::move(*found));
      continue;
    }
    auto& made = connections_.emplace_back(
        std::make_unique<Connection>(this, address, options_.max_message_bytes));
    made->backoff.fire = &ClientEngine::OnBackoffOver;
    made->backoff.context = made.get();
    dial_wanted_ = true;
  }
  for (auto& one : before) {
    if (one == nullptr) continue;
    wheel_.Cancel(&one->backoff);
    leaving_.push_back(std::move(one));
    ForgetHealth(leaving_.back().get());
  }
  // Calls that wait may need a server that was not connected because of one that is removed.
  if (table_.waiting() > 0) dial_wanted_ = true;
  server_ = absl::StrJoin(connections_, ",", [](std::string* out, const auto& one) {
    absl::StrAppend(out, one->server);
  });
  NoteState();
}

void ClientEngine::DropLeft() {
  std::erase_if(leaving_, [this](const auto& connection) {
    if (connection->outstanding != 0) return false;
    wheel_.Cancel(&connection->backoff);
    ForgetHealth(connection.get());
    if (Find(connection->peer) == connection.get()) {
      by_peer_[connection->peer.index] = nullptr;
      endpoint_->Disconnect(connection->peer);
    }
    return true;
  });
  if (!HasHope()) EndHopeless();
}

// Returns true if Poll() has work other than timers and events of the endpoint, which announce themselves.
bool ClientEngine::HasWork() const {
  return dial_wanted_ || servers_changed_ || !end_soon_.empty() ||
         std::any_of(leaving_.begin(), leaving_.end(),
                     [](const auto& connection) { return connection->outstanding == 0; });
}

ConnectionState ClientEngine::state() const {
  if (closed_) return ConnectionState::kClosed;
  constexpr ConnectionState kBestFirst[] = {ConnectionState::kUp, ConnectionState::kConnecting,
                                            ConnectionState::kDraining, ConnectionState::kBackoff};
  for (const ConnectionState state : kBestFirst) {
    for (const auto& connection : connections_) {
      if (connection->state == state) return state;
    }
  }
  return ConnectionState::kIdle;
}

bool ClientEngine::HasHope() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const auto& connection) {
    return connection->state == ConnectionState::kUp ||
           connection->state == ConnectionState::kConnecting || connection->rests ||
           connection->state == ConnectionState::kIdle;  // the next Poll() dials
  });
}

void ClientEngine::EndHopeless() {
  if (table_.waiting() == 0) return;
  counters_.calls_failed +=
      table_.EndAll(CallState::kWaiting, CallEvent::kFail, NotConnected("call"),
                    [](const Call& call) { return !call.spec.wait_for_ready; });
}

void ClientEngine::Dial() {
  dial_wanted_ = false;
  for (size_t i = 0; i < connections_.size(); ++i) {
    if (!StaysAtRest(i)) Dial(connections_[i].get());
  }
}

void ClientEngine::Dial(Connection* connection) {
  if (connection->state != ConnectionState::kIdle &&
      connection->state != ConnectionState::kBackoff) {
    return;
  }
  RefreshNow();
  wheel_.Cancel(&connection->backoff);
  Move(connection, ConnectionEvent::kDial);
  ++counters_.dials;
  const auto peer = endpoint_->Connect(connection->address.host, connection->address.port,
                                       now_ns_ + options_.connect_timeout_ns);
  if (!peer.ok()) return Lose(connection, peer.status(), absl::StatusCode::kUnavailable);
  connection->peer = *peer;
  if (peer->index >= by_peer_.size()) by_peer_.resize(peer->index + 1);
  by_peer_[peer->index] = connection;
}

void ClientEngine::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  Connection* const connection = Find(peer);
  if (connection == nullptr || connection->state != ConnectionState::kConnecting) return;
  Move(connection, ConnectionEvent::kPeerUp);
  connection->rests = false;
  if (std::exchange(connection->given_up, false)) connection->failed_attempts = 0;
  if (now_is_stale_) RefreshNow();
  connection->limit_bytes = LimitOf(info);
  connection->eager_bytes = info.max_message_bytes;
  limit_bytes_ = 0;
  for (const auto& one : connections_) limit_bytes_ = std::max(limit_bytes_, one->limit_bytes);
  connection->up_since_ns = now_ns_;
  ++counters_.connections;
  Trace(observe::TraceEvent::kPeerUp, 0, 0, peer.index);
  if (std::exchange(connection->said, absl::StatusCode::kOk) != absl::StatusCode::kOk) {
    log_.Say(base::Severity::kInfo, "connected again", connection->server,
             absl::StrCat("connected to ", connection->server, " again"));
  }
  WatchHealth(connection);
  SendWaiting();
}

void ClientEngine::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  // nullptr: Break() has disconnected it.
  if (Connection* connection = Find(peer); connection != nullptr) {
    Lose(connection, why, absl::StatusCode::kUnavailable);
  }
}

void ClientEngine::Lose(Connection* connection, const absl::Status& why,
                        absl::StatusCode sent_code) {
  if (closed_) return;
  if (now_is_stale_) RefreshNow();
  Trace(observe::TraceEvent::kPeerDown, 0, 0, connection->peer.index, why);
  if (Find(connection->peer) == connection) by_peer_[connection->peer.index] = nullptr;
  connection->peer = endpoint::PeerId();
  connection->cancels_owed.clear();
  connection->blocked.clear();
  connection->drain_owed = false;
  if (!absl::IsResourceExhausted(why) || connection->failed_attempts >= kMostRefusals) {
    connection->rests = false;
  }
  LogLoss(connection, why);
  if (connection->state == ConnectionState::kUp ||
      connection->state == ConnectionState::kDraining) {
    ++counters_.connections_lost;
    if (now_ns_ - connection->up_since_ns >= kStableNs) connection->failed_attempts = 0;
  }
  last_error_ = why;
  const bool leaving = IsLeaving(connection);
  const uint32_t most_attempts = connection->rests
                                     ? std::max(options_.max_reconnect_attempts, kMostRefusals)
                                     : options_.max_reconnect_attempts;
  if (leaving || ++connection->failed_attempts > most_attempts) {
    Move(connection, ConnectionEvent::kGiveUp);
    connection->rests = false;
    connection->failed_attempts = 0;
    if (!leaving) {
      some_given_up_ = true;
      redial_ns_ = now_ns_ + Jittered(options_.backoff_max_ns);
    }
    if (!leaving && !std::exchange(connection->given_up, true)) {
      log_.Say(base::Severity::kWarning, "connection given up", connection->server,
               absl::StrCat("no more attempts to connect to ", connection->server,
                            " until the next call: ", options_.max_reconnect_attempts + 1,
                            " in a row have failed"));
    }
  } else {
    Move(connection, ConnectionEvent::kLost);
    const uint32_t doublings = std::min(connection->failed_attempts - 1, kMaxBackoffDoublings);
    const int64_t wait = std::min(options_.backoff_max_ns, options_.backoff_min_ns << doublings);
    wheel_.Schedule(&connection->backoff, now_ns_ + Jittered(wait));
  }
  ForgetHealth(connection);

  if (table_.active() == 0) return;
  const absl::Status lost = base::Error(
      sent_code, "connection lost while the call was in flight",
      {.layer = "call",
       .peer = connection->server,
       .operation = "call",
       .cause = CauseOf(why),
       .remedy = "the call may have run; retry it only if running it twice is harmless"});
  if (options_.retry.max_attempts > 1) {
    table_.ForEachSent([&](Call* call) {
      if (call->connection == connection) Retry(call, lost, /*not_run=*/false);
    });
  }
  counters_.calls_failed +=
      table_.EndAll(CallState::kSent, CallEvent::kPeerDown, lost,
                    [&](const Call& call) { return call.connection == connection; });
  // An idle connection connects when a new call starts, and not for calls that wait already, unless it rests.
  if (table_.waiting() > 0 && some_rest_) DialResting();
  const bool others = std::any_of(connections_.begin(), connections_.end(), [&](const auto& one) {
    return one.get() != connection &&
           (one->state == ConnectionState::kUp || one->state == ConnectionState::kConnecting ||
            (one->state == ConnectionState::kBackoff && one->rests) ||
            (one->state == ConnectionState::kIdle && dial_wanted_));
  });
  if (!others && !connection->rests) EndHopeless();
  // Calls may have waited for credit of this server. If it was the last server that serves, the other servers get calls now.
  SendWaiting();
  // Calls still wait, so another attempt is scheduled for them. A callback may have removed the server.
  if (connection->state == ConnectionState::kIdle && table_.waiting() > 0 &&
      !IsLeaving(connection)) {
    if (state() == ConnectionState::kUp)
      connection->failed_attempts = options_.max_reconnect_attempts;
    wheel_.Schedule(&connection->backoff, now_ns_ + options_.backoff_max_ns);
  }
}

// Of several servers: lets the next Poll() make one attempt to connect to each server that was given up. A call to another server starts
// the attempt, so without calls there are no attempts. If no server is up, the call itself starts a series of attempts.
void ClientEngine::DialGivenUp() {
  if (state() != ConnectionState::kUp) return;
  some_given_up_ = false;
  for (const auto& one : connections_) {
    if (one->given_up && one->state == ConnectionState::kIdle) dial_wanted_ = true;
  }
}

// While another server is up, a server that was given up gets one attempt per backoff, whatever asked for it.
bool ClientEngine::MayDialAgain(Connection* connection) {
  if (!connection->given_up || state() != ConnectionState::kUp) return true;
  if (now_is_stale_) RefreshNow();
  if (now_ns_ < redial_ns_) {
    some_given_up_ = true;  // DialGivenUp() asks again
    return false;
  }
  connection->failed_attempts = options_.max_reconnect_attempts;
  return true;
}

// Logs a warning once for each reason, and no warning for an error that Channel::Connect() is about to return.
void ClientEngine::LogLoss(Connection* connection, const absl::Status& why) {
  if (!log_.listens()) return;
  const bool was_up = connection->state != ConnectionState::kConnecting;
  const bool expected =
      connection->state == ConnectionState::kDraining || connection->rests ||
      (options_.first_failure_is_told && counters_.connections == 0 && connections_.size() == 1);
  const bool news = connection->said != why.code() || was_up;
  // A refusal that calls wait out is no news yet.
  if (!connection->rests) connection->said = why.code();
  base::Severity severity = base::Severity::kInfo;
  if (news && !expected) {
    severity = absl::IsUnauthenticated(why) ? base::Severity::kError : base::Severity::kWarning;
  }
  log_.Say(severity, was_up ? "connection lost" : "connect failed", connection->server,
           absl::StrCat(was_up ? "connection to " : "can't connect to ", connection->server,
                        was_up ? " lost: " : ": ", why.message()));
}

void ClientEngine::OnDrain(Connection* connection, const frame::Header& header) {
  if ((header.flags & frame::kFlagRest) != 0) return Rest(connection);
  if (connection->state != ConnectionState::kUp) return;
  Move(connection, ConnectionEvent::kDrain);
  ForgetHealth(connection);
  log_.Say(base::Severity::kInfo, "server drains", connection->server,
           absl::StrCat(connection->server, " accepts no new calls: it is shutting down"));
  connection->drain_owed = !SendControl(connection, frame::Kind::kDrain, 0, 0);
  if (!HasHope()) EndHopeless();
  if (table_.waiting() == 0) return;
  if (now_is_stale_) RefreshNow();
  SendWaiting();  // calls may have waited for credit of this server
}

void ClientEngine::OnBackoffOver(base::Timer*, void* context) {
  auto* connection = static_cast<Connection*>(context);
  connection->engine->Dial(connection);
}

void ClientEngine::Break(Connection* connection, std::string_view what,
                         std::string_view explanation) {
  ++counters_.protocol_errors;
  const endpoint::PeerId peer = connection->peer;
  const absl::Status why =
      base::Error(absl::StatusCode::kInternal, absl::StrCat(std::string(what), " from the server"),
                  {.layer = "call",
                   .peer = connection->server,
                   .operation = "receive",
                   .cause = explanation,
                   .remedy = "run the same release of Sluice on both sides"});
  Lose(connection, why, absl::StatusCode::kInternal);
  endpoint_->Disconnect(peer);
}

}  // namespace sluice::call
