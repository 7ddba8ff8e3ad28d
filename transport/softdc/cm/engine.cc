// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/engine.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/softdc/cm/addresses.h"
#include "transport/softdc/loop/gids.h"
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

void CopyPrivateData(const WireMessage& message, size_t bytes, Event* event) {
  std::memcpy(event->private_data, message.private_data, bytes);
}

}  // namespace

Engine::Engine(DeviceHooks hooks, Timers* timers, const Dials::Cm& dials)
    : hooks_(std::move(hooks)),
      timers_(timers),
      dials_(dials),
      psn_state_(static_cast<uint64_t>(Loop::NowNs()) ^ (static_cast<uint64_t>(getpid()) << 40)) {}

Engine::~Engine() {
  for (const auto& [wire, unidentified] : unidentified_) timers_->Cancel(unidentified.timer);
  fabric_.reset();  // no callback happens after this
}

void Engine::SetFabric(std::unique_ptr<Fabric> fabric) { fabric_ = std::move(fabric); }

void Engine::SetSeed(uint64_t seed) {
  std::lock_guard<std::mutex> lock(mutex_);
  psn_state_ = seed;
}

EngineCounters Engine::counters() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return counters_;
}

std::vector<IdState> Engine::Ids() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<IdState> states;
  states.reserve(ids_.size());
  for (const auto& [number, id] : ids_) {
    states.push_back({.serial = id->serial,
                      .state = id->state,
                      .local_qp_num = id->local_qp_num,
                      .peer_qp_num = id->facts.peer_qp_num,
                      .peer = id->destination,
                      .timewait_ns = TimewaitNs(id->path_ack_timeout)});
  }
  return states;
}

uint32_t Engine::NextPsn() {
  // SplitMix64: well distributed, not secret.
  uint64_t z = psn_state_ += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<uint32_t>(z >> 40);
}

Id* Engine::NewId(Channel* channel, uint64_t uid, rdma_port_space ps, ibv_qp_type type) {
  auto created = std::make_unique<Id>();
  Id* const id = created.get();
  id->number = static_cast<uint32_t>(ids_.size() + free_numbers_.size());
  if (!free_numbers_.empty()) {
    id->number = *free_numbers_.begin();
    free_numbers_.erase(free_numbers_.begin());
  }
  id->uid = uid;
  id->channel = channel;
  id->ps = ps;
  id->qp_type = type;
  id->packet_lifetime = dials_.packet_lifetime;
  id->serial = next_serial_++;
  ids_by_serial_[id->serial] = id;
  ids_[id->number] = std::move(created);
  return id;
}

uint32_t Engine::EndId(Id* id) {
  for (std::unique_ptr<Event>& event : id->channel->Extract(id)) {
    if (event->request == nullptr) continue;
    --event->owner->unread_requests;
    // The application has not read the event, so it will never learn of the new id.
    if (event->request != id) EndId(event->request);
  }
  SayGoodbye(id);
  const uint32_t reported = id->events_reported;
  ids_by_serial_.erase(id->serial);
  free_numbers_.insert(id->number);
  ids_.erase(id->number);
  return reported;
}

void Engine::SayGoodbye(Id* id) {
  StopTimer(id);
  CloseKey(id);  // before the message: its receiver may reuse the number at once
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
    case State::kSidrReceived: {
      Arguments arguments;
      Input next;
      bool has_next = false;
      Do(Action::kSendSidrRefusal, id, &arguments, &next, &has_next);
      break;
    }
    default:
      break;
  }
  CloseWire(id);
  id->state = State::kClosed;
}

void Engine::CloseWire(Id* id) {
  if (id->wire == 0) return;
  ids_by_handle_.erase(id->wire);
  fabric_->Close(id->wire);
  id->wire = 0;
  id->connected = false;
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
  ++id->timer_generation;  // a timer that could not be cancelled is then outdated
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
  } else if (id->attempts >= dials_.max_attempts) {
    Apply(id, Input::kLastRetryTimer, &arguments);
  } else {
    ++id->attempts;
    Apply(id, Input::kRetryTimer, &arguments);
  }
}

int Engine::Find(const Channel* channel, uint32_t number, Need need, Id** id) {
  const auto found = ids_.find(number);
  if (found == ids_.end()) return ENOENT;
  *id = found->second.get();
  if ((*id)->channel != channel) return EINVAL;
  return need == Need::kDevice && !(*id)->has_device ? EINVAL : 0;
}

int Engine::Call(Channel* channel, uint32_t number, Need need, Input input, Arguments* arguments) {
  std::lock_guard<std::mutex> lock(mutex_);
  Id* id = nullptr;
  const int error = Find(channel, number, need, &id);
  return error != 0 ? error : Apply(id, input, arguments);
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
    case State::kSidrSent:
    case State::kRepSent:
      id->attempts = 1;
      StartTimer(id, dials_.retry_ns);
      break;
    case State::kTimewait:
      CloseKey(id);
      CloseWire(id);
      StartTimer(id, TimewaitNs(id->path_ack_timeout));
      break;
    case State::kDatagram:
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
  event->owner = id;
  event->id = id->number;
  event->uid = id->uid;
  event->is_ud = IsDatagram(id->qp_type);
  event->type = EventType(row.told);
  rdma_conn_param& conn = event->conn;
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
      if (row.input == Input::kRefused) event->status = kSidrUnsupported;
      if (row.input == Input::kSidrRefusal) {
        event->status = message->reject_reason;
        event->private_data_bytes = kSidrRepPrivateDataBytes;
        CopyPrivateData(*message, kSidrRepPrivateDataBytes, event.get());
      }
      break;
    case Told::kDisconnected:
      event->status = row.input == Input::kLastRetryTimer ? -ETIMEDOUT : 0;
      break;
    case Told::kRejected:
      event->status = row.input == Input::kRefused ? kRejInvalidServiceId : kRejConsumerDefined;
      if (row.input == Input::kRej) {
        event->status = message->reject_reason;
        CopyPrivateData(*message, kRejPrivateDataBytes, event.get());
      }
      event->private_data_bytes = kRejPrivateDataBytes;
      break;
    case Told::kConnectResponse:
      CopyPrivateData(*message, kRepPrivateDataBytes, event.get());
      event->private_data_bytes = kRepPrivateDataBytes;
      conn.responder_resources = message->initiator_depth;
      conn.initiator_depth = message->responder_resources;
      conn.flow_control = message->flow_control;
      conn.rnr_retry_count = message->rnr_retry_count;
      conn.srq = message->srq;
      conn.qp_num = message->qp_num;
      event->ece.vendor_id = message->ece_vendor_id;
      event->ece.options = message->ece_options;
      break;
    case Told::kEstablished:
      if (!event->is_ud) break;
      CopyPrivateData(*message, kSidrRepPrivateDataBytes, event.get());
      event->private_data_bytes = kSidrRepPrivateDataBytes;
      event->ud.qp_num = message->qp_num;
      event->ud.qkey = message->qkey;
      event->ud.ah_attr = AddressVector(FactsOf(*id));
      break;
    default:
      break;
  }
  Push(std::move(event));
}

QpFacts Engine::FactsOf(const Id& id) {
  QpFacts facts = id.facts;
  facts.local_gid_index =
      static_cast<uint8_t>(IndexWithRoceV1(fabric_->GidIndex(facts.local_gid), hooks_.roce_v1));
  facts.path_mtu = hooks_.path_mtu;
  if (dials_.static_rate) facts.static_rate = IBV_RATE_40_GBPS;
  if (dials_.flow_labels) facts.flow_label = FlowLabel(PortOf(id.from()), PortOf(id.to()));
  return facts;
}

void Engine::Push(std::unique_ptr<Event> event) {
  // The kernel drops events of a new connection until its application has accepted it.
  if (event->uid != 0) event->owner->channel->Push(std::move(event));
}

int Engine::TakeEvent(Channel* channel, const std::function<int(const Event&)>& deliver) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Event* const first = channel->Front();
  if (first == nullptr) return EAGAIN;
  if (const int error = deliver(*first); error != 0) return error;
  ++first->owner->events_reported;
  if (first->request != nullptr) {
    --first->owner->unread_requests;
    first->request->channel = channel;
  }
  channel->Pop();
  return 0;
}

}  // namespace sluice::softdc::cm
