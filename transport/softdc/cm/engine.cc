// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/engine.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc::cm {
namespace {

rdma_cm_event_type EventType(Told told) {
  switch (told) {
    case Told::kAddrResolved:
      return RDMA_CM_EVENT_ADDR_RESOLVED;
    case Told::kAddrError:
      return RDMA_CM_EVENT_ADDR_ERROR;
    case Told::kRouteResolved:
      return RDMA_CM_EVENT_ROUTE_RESOLVED;
    case Told::kRouteError:
      return RDMA_CM_EVENT_ROUTE_ERROR;
    case Told::kConnectResponse:
      return RDMA_CM_EVENT_CONNECT_RESPONSE;
    case Told::kNothing:
    case Told::kConnectError:
      return RDMA_CM_EVENT_CONNECT_ERROR;
    case Told::kUnreachable:
      return RDMA_CM_EVENT_UNREACHABLE;
    case Told::kRejected:
      return RDMA_CM_EVENT_REJECTED;
    case Told::kEstablished:
      return RDMA_CM_EVENT_ESTABLISHED;
    case Told::kDisconnected:
      return RDMA_CM_EVENT_DISCONNECTED;
    case Told::kTimewaitExit:
      return RDMA_CM_EVENT_TIMEWAIT_EXIT;
  }
  return RDMA_CM_EVENT_CONNECT_ERROR;
}

}  // namespace

Engine::Engine(DeviceHooks hooks, Timers* timers)
    : hooks_(std::move(hooks)),
      timers_(timers),
      psn_state_(static_cast<uint64_t>(Loop::NowNs()) ^ (static_cast<uint64_t>(getpid()) << 40)) {}

Engine::~Engine() {
  for (const auto& [wire, unidentified] : unidentified_) timers_->Cancel(unidentified.timer);
  fabric_.reset();  // after this nothing calls back
}

void Engine::SetFabric(std::unique_ptr<Fabric> fabric) { fabric_ = std::move(fabric); }

EngineCounters Engine::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

uint32_t Engine::NextPsn() {
  // SplitMix64: spread, not secrecy.
  uint64_t z = psn_state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(z >> 40);
}

int Engine::LoadDevice() {
  if (!hooks_.context) return 0;
  ibv_context* const context = hooks_.context();
  ibv_pd* const pd = context != nullptr && hooks_.pd ? hooks_.pd() : nullptr;
  if (context == nullptr) return ENODEV;
  std::lock_guard<std::mutex> lock(mutex_);
  device_context_ = context;
  device_pd_ = pd;
  return 0;
}

void Engine::AttachDevice(Id* id) {
  id->verbs = device_context_;
  id->pd = device_pd_;
  id->port_num = kPortNum;
}

int Engine::CreateChannel(Channel** channel) {
  auto created = std::make_unique<Channel>();
  created->engine = this;
  if (const int error = created->Open(); error != 0) return error;
  *channel = created.release();
  return 0;
}

void Engine::DestroyChannel(Channel* channel) {
  {
    std::lock_guard<std::mutex> lock(mutex_);  // a push on another thread is over
  }
  delete channel;
}

Id* Engine::NewId(Channel* channel, void* context, rdma_port_space ps) {
  Id* id = new Id();
  static_cast<rdma_cm_id&>(*id) = rdma_cm_id{};
  id->channel = channel;
  id->context = context;
  id->ps = ps;
  id->qp_type = IBV_QPT_RC;
  id->engine = this;
  id->serial = next_serial_++;
  ids_by_serial_[id->serial] = id;
  return id;
}

int Engine::CreateId(Channel* channel, void* context, rdma_port_space ps, Id** id) {
  std::lock_guard<std::mutex> lock(mutex_);
  *id = NewId(channel, context, ps);
  return 0;
}

int Engine::DestroyId(Id* id) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (std::unique_ptr<Event>& event : static_cast<Channel*>(id->channel)->Extract(id)) {
    if (event->request == nullptr) continue;
    Abandon(event->request);  // nobody has seen it, and nobody will
    delete event->request;
  }
  Abandon(id);
  event_acked_.wait(lock, [&] { return id->events_acked == id->events_reported; });
  lock.unlock();
  delete id;
  return 0;
}

void Engine::Abandon(Id* id) {
  StopTimer(id);
  CloseKey(id);  // before the goodbye: whoever hears it may use the number at once
  switch (id->state) {
    case State::kListen:
      for (auto it = unidentified_.begin(); it != unidentified_.end();) {
        const auto [wire, unidentified] = *it++;
        if (unidentified.listener == id) DropUnidentified(wire, /*refused=*/false);
      }
      break;
    case State::kReqSent:
      SendRej(id->wire, kRejTimeout, nullptr, 0);
      break;
    case State::kRepReceived:
    case State::kReqReceived:
    case State::kRepSent:
      SendRej(id->wire, kRejConsumerDefined, nullptr, 0);
      break;
    case State::kEstablished:
      Send(id->wire, NewMessage(MessageType::kDreq));
      break;
    case State::kDreqReceived:
      Send(id->wire, NewMessage(MessageType::kDrep));
      break;
    default:
      break;
  }
  CloseWire(id);
  id->state = State::kClosed;
  ids_by_serial_.erase(id->serial);
}

void Engine::CloseWire(Id* id) {
  if (id->wire == 0) return;
  ids_by_handle_.erase(id->wire);
  fabric_->Close(id->wire);
  id->wire = 0;
}

void Engine::CloseKey(Id* id) {
  if (id->key == 0) return;
  ids_by_handle_.erase(id->key);
  fabric_->Close(id->key);
  id->key = 0;
}

void Engine::StartTimer(Id* id, int64_t delay_ns) {
  StopTimer(id);
  const uint64_t serial = id->serial;
  const uint32_t generation = ++id->timer_generation;
  id->timer = timers_->After(delay_ns, [this, serial, generation] { OnTimer(serial, generation); });
}

void Engine::StopTimer(Id* id) {
  if (id->timer != 0) timers_->Cancel(id->timer);
  id->timer = 0;
  ++id->timer_generation;  // one that could not be cancelled any more finds itself outdated
}

void Engine::OnTimer(uint64_t serial, uint32_t generation) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = ids_by_serial_.find(serial);
  if (found == ids_by_serial_.end() || found->second->timer_generation != generation) return;
  Id* id = found->second;
  id->timer = 0;
  Arguments arguments;
  if (id->state == State::kTimewait) {
    Apply(id, Input::kTimewaitTimer, &arguments);
  } else if (std::exchange(id->quick_retry, false)) {
    Apply(id, Input::kRetryTimer, &arguments);
  } else if (id->attempts >= kMaxAttempts) {
    Apply(id, Input::kLastRetryTimer, &arguments);
  } else {
    ++id->attempts;
    Apply(id, Input::kRetryTimer, &arguments);
  }
}

int Engine::Apply(Id* id, Input input, Arguments* arguments) {
  const Row* row = FindRow(id->state, input);
  if (row == nullptr) return EINVAL;
  Input next;
  bool has_next = false;
  const int error = Do(row->action, id, arguments, &next, &has_next);
  if (error != 0) return error;
  if (row->to != id->state) Enter(id, row->to);
  if (row->told != Told::kNothing) Tell(id, *row, *arguments);
  if (has_next) Apply(id, next, arguments);
  return 0;
}

void Engine::Enter(Id* id, State state) {
  id->state = state;
  StopTimer(id);
  switch (state) {
    case State::kReqSent:
    case State::kDreqSent:
      id->attempts = 1;
      StartTimer(id, kRetryNs);
      break;
    case State::kTimewait:
      CloseKey(id);
      CloseWire(id);
      StartTimer(id, TimewaitNs(id->path_ack_timeout));
      break;
    case State::kClosed:
      CloseKey(id);
      CloseWire(id);
      break;
    default:
      break;
  }
}

void Engine::Tell(Id* id, const Row& row, const Arguments& arguments) {
  auto event = std::make_unique<Event>();
  static_cast<rdma_cm_event&>(*event) = rdma_cm_event{};
  event->owner = id;
  event->id = id;
  event->event = EventType(row.told);
  rdma_conn_param& conn = event->param.conn;
  const WireMessage* const message = arguments.message;
  switch (row.told) {
    case Told::kAddrError:
    case Told::kRouteError:
      event->status = -EHOSTUNREACH;
      break;
    case Told::kConnectError:
      event->status = row.input == Input::kGarbage ? -EPROTO : -arguments.error;
      break;
    case Told::kUnreachable:
      event->status = -ETIMEDOUT;
      break;
    case Told::kDisconnected:
      event->status = row.input == Input::kLastRetryTimer ? -ETIMEDOUT : 0;
      break;
    case Told::kRejected:
      event->status = row.input == Input::kRefused ? kRejInvalidServiceId : kRejConsumerDefined;
      if (row.input == Input::kRej) {
        event->status = message->reject_reason;
        std::memcpy(event->private_data, message->private_data, kRejPrivateDataBytes);
      }
      conn.private_data = event->private_data;
      conn.private_data_len = kRejPrivateDataBytes;
      break;
    case Told::kConnectResponse:
      std::memcpy(event->private_data, message->private_data, kRepPrivateDataBytes);
      conn.private_data = event->private_data;
      conn.private_data_len = kRepPrivateDataBytes;
      conn.responder_resources = message->initiator_depth;
      conn.initiator_depth = message->responder_resources;
      conn.flow_control = message->flow_control;
      conn.rnr_retry_count = message->rnr_retry_count;
      conn.srq = message->srq;
      conn.qp_num = message->qp_num;
      break;
    default:
      break;
  }
  static_cast<Channel*>(id->channel)->Push(std::move(event));
}

int Engine::GetEvent(Channel* channel, Event** event) {
  for (;;) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (std::unique_ptr<Event> popped = channel->Pop()) {
        ++popped->owner->events_reported;
        if (popped->request != nullptr) {
          --popped->owner->unread_requests;
          popped->request->channel = popped->owner->channel;
        }
        *event = popped.release();
        return 0;
      }
    }
    const int flags = fcntl(channel->fd, F_GETFL);
    if (flags < 0) return errno;
    if ((flags & O_NONBLOCK) != 0) return EAGAIN;
    pollfd readable{.fd = channel->fd, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, -1) < 0) return errno;
  }
}

void Engine::AckEvent(Event* event) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++event->owner->events_acked;
    event_acked_.notify_all();  // under the lock: the owner may be gone right after it
  }
  delete event;
}

int Engine::Migrate(Id* id, Channel* channel) {
  std::unique_lock<std::mutex> lock(mutex_);
  Channel* const old = static_cast<Channel*>(id->channel);
  if (old == channel) return 0;
  for (std::unique_ptr<Event>& event : old->Extract(id)) channel->Push(std::move(event));
  id->channel = channel;
  event_acked_.wait(lock, [&] { return id->events_acked == id->events_reported; });
  return 0;
}

}  // namespace sluice::softdc::cm
