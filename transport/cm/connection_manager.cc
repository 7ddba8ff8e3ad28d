// SPDX-License-Identifier: Apache-2.0
//
// Calls and events, and the records they concern. The table (states.cc) says what happens when;
// connection_actions.cc does it.
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
    base::Clock& clock, base::TimerWheel& timers, User& user) {
  std::unique_ptr<ConnectionManager> manager(
      new ConnectionManager(api, std::move(options), numbers, commands, clock, timers, user));
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
  return manager;
}

ConnectionManager::ConnectionManager(const verbs::VerbsApi& api, Options options, QpnPool& numbers,
                                     poller::Commands& commands, base::Clock& clock,
                                     base::TimerWheel& timers, User& user)
    : api_(api),
      options_(std::move(options)),
      numbers_(numbers),
      commands_(commands),
      clock_(clock),
      timers_(timers),
      user_(user),
      quarantine_timer_(OnQuarantineEnd, this) {}

ConnectionManager::~ConnectionManager() {
  timers_.Cancel(&quarantine_timer_);
  for (auto& connection : connections_) {
    timers_.Cancel(&connection->deadline);
    if (connection->id != nullptr) api_.cm_destroy_id(connection->id);
  }
  listeners_.clear();
}

ConnectionManager::Connection* ConnectionManager::Find(ConnectionId id) const {
  if (id.index >= connections_.size()) return nullptr;
  Connection* c = connections_[id.index].get();
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
    connections_.push_back(std::make_unique<Connection>());
    connections_.back()->manager = this;
    connections_.back()->index = index;
    connections_.back()->deadline.fire = OnDeadline;
    connections_.back()->deadline.context = connections_.back().get();
  }
  Connection* c = connections_[index].get();
  if (++c->generation == 0) c->generation = 1;
  ++in_use_;
  return c;
}

void ConnectionManager::Free(Connection* c) {
  timers_.Cancel(&c->deadline);
  assert(c->id == nullptr && c->commands == 0);
  c->active = false;
  c->qpn = 0;
  c->path = {};
  c->answer_ece = {};
  c->addresses.clear();
  c->next_address = 0;
  c->host.clear();
  c->peer.clear();
  c->outgoing_bytes = 0;
  c->incoming.clear();
  c->qpn_exposed = c->timewait_over = c->retried_stale = c->closed = c->destroy_waits = false;
  c->why = absl::OkStatus();
  free_.push_back(c->index);
  --in_use_;
}

void ConnectionManager::Handle(Connection* c, Event event) {
  const Transition transition = Next(c->state, event);
  if (transition.action == Action::kIgnore) {
    ++ignored_events_;
    return;
  }
  if (event == Event::kDeadline && c->why.ok()) c->why = DeadlineError(*c);
  c->state = transition.next;
  Do(c, transition.action);
}

void ConnectionManager::Do(Connection* c, Action action) {
  switch (action) {
    case Action::kIgnore:
      return;
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
      return user_.OnResponse(c->id_of(), c->incoming, c->path);
    case Action::kTellRequest:
      return user_.OnRequest(c->id_of(), c->incoming, c->path, c->peer);
    case Action::kEstablish:
      return SendReady(c);
    case Action::kAccept:
      return SendResponse(c);
    case Action::kReject:
      return RejectAndDestroy(c);
    case Action::kTellUp:
      timers_.Cancel(&c->deadline);
      return user_.OnUp(c->id_of());
    case Action::kTellDownAndDestroy:
      TellDown(c);
      return Destroy(c);
    case Action::kTellDownAndAnswer:
      // The DREP leaves only when this side disconnects too; until then the other side waits.
      SetDeadline(c, clock_.NowNs() + options_.timewait_limit_ns);
      Disconnect(c);
      return TellDown(c);
    case Action::kDisconnect:
      SetDeadline(c, clock_.NowNs() + options_.close_timeout_ns);
      return Disconnect(c);
    case Action::kKeepForTimewait:
      return SetDeadline(c, clock_.NowNs() + options_.timewait_limit_ns);
    case Action::kDestroy:
      return Destroy(c);
    case Action::kFree:
      return Free(c);
  }
}

void ConnectionManager::TellDown(Connection* c) {
  if (c->closed) return;
  c->closed = true;
  if (c->why.ok()) {
    c->why = base::Error(absl::StatusCode::kUnavailable, "connection ended",
                         {.layer = "cm", .peer = c->peer, .operation = "connect"});
  }
  const std::vector<std::byte> data = std::move(c->incoming);
  c->incoming.clear();
  user_.OnDown(c->id_of(), c->why, data);
}

void ConnectionManager::SetDeadline(Connection* c, int64_t deadline_ns) {
  timers_.Schedule(&c->deadline, deadline_ns);
}

void ConnectionManager::OnDeadline(base::Timer*, void* context) {
  Connection* c = static_cast<Connection*>(context);
  c->manager->Handle(c, Event::kDeadline);
}

absl::StatusOr<ConnectionId> ConnectionManager::Connect(const std::string& host, uint16_t port,
                                                        int64_t deadline_ns,
                                                        std::span<const std::byte> private_data) {
  assert(private_data.size() <= kMaxRequestData);
  Connection* c = New();
  if (c == nullptr) {
    return base::Error(absl::StatusCode::kResourceExhausted, "too many connections",
                       {.layer = "cm",
                        .peer = HostPort(host, port),
                        .operation = "connect",
                        .cause = "all " + std::to_string(options_.max_connections) +
                                 " are taken, those in timewait included",
                        .remedy = "close some, or raise max_peers"});
  }
  c->active = true;
  c->host = host;
  c->port = port;
  c->peer = HostPort(host, port);
  std::copy(private_data.begin(), private_data.end(), c->outgoing.begin());
  c->outgoing_bytes = private_data.size();
  SetDeadline(c, deadline_ns);
  Handle(c, Event::kConnectCalled);
  return c->id_of();
}

void ConnectionManager::Accept(ConnectionId id, std::span<const std::byte> private_data,
                               const ibv_ece& ece) {
  Connection* c = Find(id);
  if (c == nullptr) return;
  assert(private_data.size() <= kMaxResponseData);
  c->answer_ece = ece;
  std::copy(private_data.begin(), private_data.end(), c->outgoing.begin());
  c->outgoing_bytes = private_data.size();
  Handle(c, Event::kAcceptCalled);
}

void ConnectionManager::Establish(ConnectionId id) {
  if (Connection* c = Find(id)) Handle(c, Event::kEstablishCalled);
}

void ConnectionManager::Reject(ConnectionId id, std::span<const std::byte> private_data) {
  Connection* c = Find(id);
  if (c == nullptr) return;
  const size_t bytes = std::min(private_data.size(), kMaxRejectData);
  std::copy_n(private_data.begin(), bytes, c->outgoing.begin());
  c->outgoing_bytes = bytes;
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
  if (c == nullptr || c->state != State::kAccepting) return;
  // Brings the ESTABLISHED event if the RTU was lost; fails harmlessly if it has come meanwhile.
  Submit(
      c, [this](Connection* own) { return api_.cm_notify(own->id, IBV_EVENT_COMM_EST), 0; },
      [](Connection*, int) {});
}

std::string ConnectionManager::Describe(ConnectionId id) const {
  const Connection* c = Find(id);
  return c == nullptr ? "no such connection" : c->peer + " " + std::string(Name(c->state));
}

uint32_t ConnectionManager::QpNumber(ConnectionId id) const {
  const Connection* c = Find(id);
  return c == nullptr || c->commands != 0 ? 0 : c->qpn;
}

int ConnectionManager::ReadEvents() {
  int count = 0;
  rdma_cm_event* event = nullptr;
  while (api_.cm_get_cm_event(channel_.get(), &event) == 0) {
    // Copied and acknowledged first: destroying an id waits for its events, private data dies here.
    rdma_cm_event copy = *event;
    std::vector<std::byte> data;
    const bool has_data = copy.event == RDMA_CM_EVENT_CONNECT_REQUEST ||
                          copy.event == RDMA_CM_EVENT_CONNECT_RESPONSE ||
                          copy.event == RDMA_CM_EVENT_REJECTED;
    if (has_data && copy.param.conn.private_data != nullptr) {
      const auto* bytes = static_cast<const std::byte*>(copy.param.conn.private_data);
      data.assign(bytes, bytes + copy.param.conn.private_data_len);
    }
    api_.cm_ack_cm_event(event);
    copy.param.conn.private_data = data.data();
    copy.param.conn.private_data_len = static_cast<uint8_t>(data.size());
    HandleCm(copy);
    ++count;
  }
  return count;
}

void ConnectionManager::HandleCm(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return HandleRequest(event);
  Connection* c = Find(event.id->context);
  // A late event of an id that was replaced by another attempt, or of a listener.
  if (c == nullptr || c->id != event.id) {
    ++ignored_events_;
    return;
  }
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return Handle(c, Event::kAddressResolved);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Handle(c, Event::kRouteResolved);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
      const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
      c->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
      return Handle(c, Event::kResponse);
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      return Handle(c, Event::kEstablishedSeen);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
      c->timewait_over = true;
      return Handle(c, Event::kTimewaitExit);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
    case RDMA_CM_EVENT_DISCONNECTED:
      return HandleEnd(c, event);
    default:
      ++ignored_events_;
  }
}

void ConnectionManager::HandleRequest(const rdma_cm_event& event) {
  Connection* c = New();
  if (c == nullptr) {
    // No record for it: refused without words, off the polling thread.
    commands_.Submit(
        [this, id = event.id] {
          api_.cm_reject(id, nullptr, 0);
          api_.cm_destroy_id(id);
        },
        [] {});
    return;
  }
  c->id = event.id;
  c->id->context = c->context();
  c->peer = ToString(reinterpret_cast<const sockaddr*>(&event.id->route.addr.dst_storage));
  const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
  c->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
  SetDeadline(c, clock_.NowNs() + options_.accept_timeout_ns);
  Handle(c, Event::kRequest);
}

void ConnectionManager::HandleEnd(Connection* c, const rdma_cm_event& event) {
  const bool established = c->state == State::kEstablished;
  absl::Status why = EndError(event, c->peer, established);
  c->incoming.clear();
  if (event.event == RDMA_CM_EVENT_REJECTED && event.param.conn.private_data_len != 0) {
    const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
    c->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
  }
  if (event.event == RDMA_CM_EVENT_DISCONNECTED) {
    if (c->why.ok()) c->why = std::move(why);
    return Handle(c, Event::kDisconnected);
  }
  const bool rejected = event.event == RDMA_CM_EVENT_REJECTED;
  const bool elsewhere =
      event.event == RDMA_CM_EVENT_ADDR_ERROR || event.event == RDMA_CM_EVENT_ROUTE_ERROR ||
      event.event == RDMA_CM_EVENT_UNREACHABLE || (rejected && event.status == 8);
  Handle(c, FailOrRetry(c, std::move(why), elsewhere, rejected && event.status == 10));
}

// A name may have several addresses, of which the server listens at one; and a number that firmware
// handed out again after its process died costs one recognised reject.
Event ConnectionManager::FailOrRetry(Connection* c, absl::Status why, bool worth_another_address,
                                     bool stale) {
  const bool can_retry = c->active && Next(c->state, Event::kRetryable).action != Action::kIgnore;
  if (can_retry && stale && !c->retried_stale) {
    c->retried_stale = true;
    --c->next_address;
    return Event::kRetryable;
  }
  if (can_retry && worth_another_address && c->next_address < c->addresses.size()) {
    return Event::kRetryable;
  }
  if (c->why.ok()) c->why = std::move(why);
  return Event::kFailed;
}

}  // namespace sluice::cm
