// SPDX-License-Identifier: Apache-2.0
//
// The public functions and the records of connections. states.cc has the table of states, connection_actions.cc its actions, and
// connection_events.cc the handling of events.
#include "transport/cm/connection_manager.h"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/base/error.h"
#include "transport/cm/address.h"
#include "transport/cm/connection.h"

namespace sluice::cm {
absl::StatusOr<std::unique_ptr<ConnectionManager>> ConnectionManager::Create(
    const verbs::VerbsApi& api, Options options, QpnPool& numbers, poller::Commands& commands,
    base::Clock& clock, base::TimerWheel& timers, base::Random& random, User& user) {
  std::unique_ptr<ConnectionManager> manager(new ConnectionManager(
      api, std::move(options), numbers, commands, clock, timers, random, user));
  errno = 0;
  rdma_event_channel* channel = api.cm_create_event_channel();
  if (channel == nullptr) {
    return base::ErrnoError(
        errno != 0 ? errno : ENODEV, "rdma_create_event_channel",
        {.layer = "cm",
         .cause = "RDMA_CM is not available on this host",
         .remedy = "load rdma_ucm, and check the rights on /dev/infiniband/rdma_cm"});
  }
  manager->channel_ = {&api, channel};
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::ErrnoError(errno, "fcntl(event channel)", {.layer = "cm"});
  }
  if (manager->options_.desk != nullptr) {
    auto seat = manager->options_.desk->Sit(channel);
    if (!seat.ok()) return seat.status();
    manager->seat_ = *std::move(seat);
  }
  return manager;
}

ConnectionManager::ConnectionManager(const verbs::VerbsApi& api, Options options, QpnPool& numbers,
                                     poller::Commands& commands, base::Clock& clock,
                                     base::TimerWheel& timers, base::Random& random, User& user)
    : api_(api),
      options_(std::move(options)),
      numbers_(numbers),
      commands_(commands),
      clock_(clock),
      timers_(timers),
      user_(user),
      pacing_(options_.pacing, random, options_.max_connections),
      quarantine_timer_(OnQuarantineEnd, this) {}

ConnectionManager::~ConnectionManager() {
  timers_.Cancel(&quarantine_timer_);
  if (seat_ != nullptr) {
    for (const Request& request : seat_->Leave()) api_.cm_destroy_id(request.event.id);
  }
  for (size_t i = 0; i < connections_.size(); ++i) {
    Connection& connection = connections_[i];
    CancelTimer(&connection);
    if (connection.id != nullptr) api_.cm_destroy_id(connection.id);
  }
  listeners_.clear();
}

ConnectionManager::Connection* ConnectionManager::Find(ConnectionId id) const {
  if (id.index >= connections_.size()) return nullptr;
  Connection* c = &connections_[id.index];
  return c->generation == id.generation && c->state != State::kIdle ? c : nullptr;
}

ConnectionManager::Connection* ConnectionManager::Find(const void* context) const {
  const uint64_t value = reinterpret_cast<uint64_t>(context);
  if ((value & 0xffffffff) == 0) return nullptr;
  return Find(ConnectionId{static_cast<uint32_t>(value) - 1, static_cast<uint32_t>(value >> 32)});
}

ConnectionManager::Connection* ConnectionManager::New() {
  uint32_t index;
  if (!free_.empty()) {
    index = free_.back();
    free_.pop_back();
  } else {
    if (connections_.size() >= options_.max_connections) return nullptr;
    index = static_cast<uint32_t>(connections_.size());
    connections_.Add().index = index;
  }
  Connection* c = &connections_[index];
  if (++c->generation == 0) c->generation = 1;
  PassageOf(c).attempt = std::make_unique<Attempt>();
  ++in_use_;
  if (seat_ != nullptr) seat_->SetConnections(in_use_);
  return c;
}

void ConnectionManager::Free(Connection* c) {
  CancelTimer(c);
  assert(c->id == nullptr && c->commands == 0 && !c->leaving);
  c->passage.reset();
  c->peer = {};
  c->qpn = 0;
  c->active = c->qpn_exposed = c->closed = c->notified = false;
  free_.push_back(c->index);
  --in_use_;
  if (seat_ != nullptr) seat_->SetConnections(in_use_);
}

void ConnectionManager::Handle(Connection* c, Event event) {
  const Transition transition = Next(c->state, event);
  if (transition.action == Action::kIgnore) {
    ++metrics_.ignored_events;
    return;
  }
  if (event == Event::kDeadline) {
    ++metrics_.timeouts;
    if (c->state == State::kAccepting) ++metrics_.half_open_reaped;
    if (c->state == State::kClosing) ++metrics_.unanswered_closes;
    Passage& passage = PassageOf(c);
    if (passage.why.ok()) passage.why = DeadlineError(*c);
  }
  c->state = transition.next;
  Do(c, transition.action);
}

void ConnectionManager::Do(Connection* c, Action action) {
  switch (action) {
    case Action::kIgnore:
      return;
    case Action::kWait:
      return Wait(c);
    case Action::kResolveName:
      return ResolveName(c);
    case Action::kResolveAddress:
      return ResolveAddress(c);
    case Action::kResolveRoute:
      return ResolveRoute(c);
    case Action::kConnect:
      return SendRequest(c);
    case Action::kReadPath:
      return ReadPath(c);
    case Action::kTellResponse:
      return user_.OnResponse(c->id_of(), c->attempt()->incoming, c->attempt()->path);
    case Action::kTellRequest:
      return user_.OnRequest(c->id_of(), c->attempt()->incoming, c->attempt()->path, c->peer.str());
    case Action::kEstablish:
      return SendReady(c);
    case Action::kAccept:
      return SendResponse(c);
    case Action::kReject:
      return RejectAndDestroy(c);
    case Action::kTellUp:
      return TellUp(c);
    case Action::kTellDownAndDestroy:
      TellDown(c);
      return Destroy(c);
    case Action::kTellDownAndAnswer:
      AnswerAndKeep(c);
      return TellDown(c);
    case Action::kDisconnect:
      c->leaving = true;
      ++leaving_;
      SetTimer(c, clock_.NowNs() + options_.close_timeout_ns);
      return Disconnect(c);
    case Action::kAnswerAndKeep:
      return AnswerAndKeep(c);
    case Action::kDestroy:
      return Destroy(c);
    case Action::kFree:
      return Free(c);
  }
}

void ConnectionManager::TellUp(Connection* c) {
  CancelTimer(c);
  const ConnectionId id = c->id_of();
  if (c->commands == 0) SettleDown(c);
  user_.OnUp(id);
}

// Frees the passage of a connection that is up and has no command in flight.
void ConnectionManager::SettleDown(Connection* c) {
  CancelTimer(c);
  c->passage.reset();
}

void ConnectionManager::TellDown(Connection* c) {
  if (c->closed) return;
  c->closed = true;
  absl::Status why = PassageOf(c).why;
  if (why.ok()) {
    why = base::Error(absl::StatusCode::kUnavailable, "connection ended",
                      {.layer = "cm", .peer = c->peer, .operation = "connect"});
  }
  std::vector<std::byte> data;
  if (c->attempt() != nullptr) data.swap(c->attempt()->incoming);
  user_.OnDown(c->id_of(), why, data);
}

ConnectionManager::Passage& ConnectionManager::PassageOf(Connection* c) {
  if (c->passage == nullptr) {
    c->passage = std::make_unique<Passage>();
    c->passage->manager = this;
    c->passage->timer.fire = OnTimer;
    c->passage->timer.context = c;
  }
  return *c->passage;
}

void ConnectionManager::SetTimer(Connection* c, int64_t deadline_ns) {
  timers_.Schedule(&PassageOf(c).timer, deadline_ns);
}

void ConnectionManager::CancelTimer(Connection* c) {
  if (c->passage != nullptr) timers_.Cancel(&c->passage->timer);
}

void ConnectionManager::SetStepTimer(Connection* c, int64_t step_ns) {
  SetTimer(c, std::min(clock_.NowNs() + step_ns, c->attempt()->deadline_ns));
}

void ConnectionManager::OnTimer(base::Timer*, void* context) {
  Connection* c = static_cast<Connection*>(context);
  ConnectionManager* self = c->passage->manager;
  const bool early = c->attempt() != nullptr && self->clock_.NowNs() < c->attempt()->deadline_ns;
  if (early && c->state == State::kBackingOff) return self->TakeTurn(c);
  if (early && Next(c->state, Event::kRetryable).action != Action::kIgnore) {
    ++self->metrics_.timeouts;
    return self->EndTry(c, self->DeadlineError(*c), Verdict::kAgain);
  }
  self->Handle(c, Event::kDeadline);
}

absl::StatusOr<ConnectionId> ConnectionManager::Connect(const std::string& host, uint16_t port,
                                                        int64_t deadline_ns,
                                                        std::span<const std::byte> private_data,
                                                        bool by_request) {
  assert(private_data.size() <= kMaxRequestData);
  Connection* c = New();
  if (c == nullptr) {
    return base::Error(absl::StatusCode::kResourceExhausted, "too many connections",
                       {.layer = "cm",
                        .peer = HostPort(host, port),
                        .operation = "connect",
                        .cause = "all " + std::to_string(options_.max_connections) +
                                 " places are taken, including connections in timewait",
                        .remedy = "close connections, or raise max_peers"});
  }
  c->active = true;
  c->peer = HostPort(host, port);
  Attempt* attempt = c->attempt();
  attempt->host = host;
  attempt->port = port;
  attempt->deadline_ns = deadline_ns;
  attempt->by_request = by_request;
  std::copy(private_data.begin(), private_data.end(), attempt->outgoing.begin());
  attempt->outgoing_bytes = private_data.size();
  Handle(c, Event::kConnectCalled);
  return c->id_of();
}

void ConnectionManager::Accept(ConnectionId id, std::span<const std::byte> private_data,
                               const ibv_ece& ece) {
  Connection* c = Find(id);
  if (c == nullptr || c->state != State::kRequested) return;
  assert(private_data.size() <= kMaxResponseData);
  Attempt* attempt = c->attempt();
  attempt->answer_ece = ece;
  std::copy(private_data.begin(), private_data.end(), attempt->outgoing.begin());
  attempt->outgoing_bytes = private_data.size();
  Handle(c, Event::kAcceptCalled);
}

void ConnectionManager::Establish(ConnectionId id) {
  if (Connection* c = Find(id)) Handle(c, Event::kEstablishCalled);
}

void ConnectionManager::Reject(ConnectionId id, std::span<const std::byte> private_data) {
  Connection* c = Find(id);
  if (c == nullptr || Next(c->state, Event::kRejectCalled).action == Action::kIgnore) return;
  Attempt* attempt = c->attempt();
  const size_t bytes = std::min(private_data.size(), kMaxRejectData);
  std::copy_n(private_data.begin(), bytes, attempt->outgoing.begin());
  attempt->outgoing_bytes = bytes;
  c->closed = true;
  Handle(c, Event::kRejectCalled);
}

void ConnectionManager::Close(ConnectionId id) {
  Connection* c = Find(id);
  if (c == nullptr) return;
  c->closed = true;
  Handle(c, Event::kCloseCalled);
}

void ConnectionManager::NoteTraffic(ConnectionId id) {
  Connection* c = Find(id);
  if (c == nullptr || c->state != State::kAccepting || c->notified) return;
  c->notified = true;
  // Causes the ESTABLISHED event if the RTU was lost. If the RTU has arrived in the meantime, the call fails, which is harmless.
  Submit(
      c, [this](Connection* own) { return api_.cm_notify(own->id, IBV_EVENT_COMM_EST), 0; },
      [](Connection*, int) {});
}

bool ConnectionManager::AwaitsAnswer(ConnectionId id) const {
  const Connection* c = Find(id);
  return c != nullptr && c->state == State::kRequested;
}

std::string ConnectionManager::Describe(ConnectionId id) const {
  const Connection* c = Find(id);
  return c == nullptr ? "no such connection" : c->peer.str() + " " + std::string(Name(c->state));
}

base::SharedText ConnectionManager::Peer(ConnectionId id) const {
  const Connection* c = Find(id);
  return c == nullptr ? base::SharedText() : c->peer;
}

uint32_t ConnectionManager::QpNumber(ConnectionId id) const {
  const Connection* c = Find(id);
  return c == nullptr || c->commands != 0 ? 0 : c->qpn;
}

Metrics ConnectionManager::metrics() const {
  Metrics metrics = metrics_;
  metrics.quarantined = quarantined();
  metrics.live = numbers_.in_use() - std::min(numbers_.in_use(), quarantined());
  metrics.exhausted = numbers_.exhausted();
  metrics.throttled = pacing_.throttled();
  return metrics;
}

}  // namespace sluice::cm
