// SPDX-License-Identifier: Apache-2.0
//
// Handles the events of RDMA_CM. Decides after a failed try whether and how to retry.
#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "transport/cm/address.h"
#include "transport/cm/connection.h"
#include "transport/cm/connection_manager.h"

namespace sluice::cm {

int ConnectionManager::ReadEvents() {
  int count = 0;
  rdma_cm_event* event = nullptr;
  while (refusals_ < kMaxRefusals) {
    if (seat_ != nullptr) {
      if (const std::optional<Request> request = seat_->Next()) {
        TakeMoved(*request);
        ++count;
        continue;
      }
    }
    if (api_.cm_get_cm_event(channel_.get(), &event) != 0) break;
    // The event is copied, then acknowledged, because rdma_destroy_id waits for unacknowledged events. After that, the private data is
    // invalid, and a command may destroy the id.
    rdma_cm_event copy = *event;
    const void* context = event->id->context;
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
    ++count;
    if (context == nullptr && seat_ != nullptr && seat_->Expects(copy.id)) {
      early_.push_back({.event = copy, .data = std::move(data)});
      continue;
    }
    HandleCm(copy, context);
  }
  return count;
}

// Takes the request, then handles the events of its id that arrived earlier.
void ConnectionManager::TakeMoved(const Request& request) {
  const void* context = TakeRequest(request.event);
  std::vector<Request> later;
  later.swap(early_);
  for (Request& one : later) {
    if (one.event.id != request.event.id) {
      early_.push_back(std::move(one));
      continue;
    }
    one.event.param.conn.private_data = one.data.data();
    HandleCm(one.event, context);
  }
}

void ConnectionManager::HandleCm(const rdma_cm_event& event, const void* context) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return HandleRequest(event);
  if (event.event == RDMA_CM_EVENT_DEVICE_REMOVAL && EndListener(event)) return;
  Connection* c = Find(context);
  // A late event of an id that a later try replaced, or an event of a listener.
  if (c == nullptr || c->id != event.id) {
    ++metrics_.ignored_events;
    return;
  }
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return Handle(c, Event::kAddressResolved);
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return Handle(c, Event::kRouteResolved);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: {
      if (c->state == State::kConnecting) {
        const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
        c->attempt()->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
      }
      return Handle(c, Event::kResponse);
    }
    case RDMA_CM_EVENT_ESTABLISHED:
      return Handle(c, Event::kEstablishedSeen);
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
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
      ++metrics_.ignored_events;
  }
}

// Returns false if the event is not an event of a listener.
bool ConnectionManager::EndListener(const rdma_cm_event& event) {
  const auto listener = std::find_if(listeners_.begin(), listeners_.end(),
                                     [&](const verbs::CmId& id) { return id.get() == event.id; });
  if (listener == listeners_.end()) return false;
  const std::string where =
      ToString(reinterpret_cast<const sockaddr*>(&event.id->route.addr.src_storage));
  commands_.Submit([id = std::move(*listener)]() mutable { id.reset(); }, [] {});
  listeners_.erase(listener);
  user_.OnListenerDown(EndError(event, where, /*established=*/false));
  return true;
}

// Returns whether the id is on the device and port of this side's queues. Returns true for an id at the wildcard address, which has no
// device yet.
bool ConnectionManager::IsOurs(const rdma_cm_id& id) const {
  if (id.verbs == nullptr) return true;
  if (!options_.device.empty() && options_.device != id.verbs->device->name) return false;
  return options_.port == 0 || id.port_num == 0 || options_.port == id.port_num;
}

// Rejects a request that has no record, in a command.
void ConnectionManager::RefuseUnheard(rdma_cm_id* id, std::vector<std::byte> words) {
  ++refusals_;
  commands_.Submit(
      [this, id, words = std::move(words)] {
        api_.cm_reject(id, words.empty() ? nullptr : words.data(),
                       static_cast<uint8_t>(words.size()));
        api_.cm_destroy_id(id);
      },
      [this] { --refusals_; });
}

void ConnectionManager::HandleRequest(const rdma_cm_event& event) {
  if (!IsOurs(*event.id)) {
    ++metrics_.strange_requests;
    if (!options_.wrong_place) return RefuseUnheard(event.id);
    return RefuseUnheard(
        event.id,
        options_.wrong_place("the request came over " +
                             PlaceOf(event.id->verbs->device->name, event.id->port_num) +
                             ", the server uses " + PlaceOf(options_.device, options_.port)));
  }
  if (seat_ == nullptr || !HandOver(event)) TakeRequest(event);
}

bool ConnectionManager::HandOver(const rdma_cm_event& event) {
  const std::shared_ptr<Seat> seat = options_.desk->Choose();
  if (seat == seat_) {
    RequestDesk::Unchoose(*seat);
    return false;
  }
  auto request = std::make_shared<Request>();
  request->event = event;
  const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
  request->data.assign(bytes, bytes + event.param.conn.private_data_len);
  request->event.param.conn.private_data = request->data.data();
  // Destroys the id if this manager ends before the id has moved.
  auto mine = std::make_shared<verbs::CmId>(&api_, event.id);
  ++refusals_;
  commands_.Submit(
      [this, seat, request, mine] {
        if (seat->Take(api_, *request)) mine->release();
      },
      [this, request, mine] {
        --refusals_;
        if (mine->get() != nullptr) TakeRequest((mine->release(), request->event));
      });
  return true;
}

const void* ConnectionManager::TakeRequest(const rdma_cm_event& event) {
  Connection* c = New();
  if (c == nullptr) {
    ++metrics_.refused_requests;
    RefuseUnheard(event.id);
    return nullptr;
  }
  const void* const context = c->context();
  c->id = event.id;
  c->id->context = c->context();
  c->peer = ToString(reinterpret_cast<const sockaddr*>(&event.id->route.addr.dst_storage));
  const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
  c->attempt()->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
  c->attempt()->deadline_ns = clock_.NowNs() + options_.accept_timeout_ns;
  SetTimer(c, c->attempt()->deadline_ns);
  Handle(c, Event::kRequest);
  return context;
}

void ConnectionManager::HandleEnd(Connection* c, const rdma_cm_event& event) {
  absl::Status why = EndError(event, c->peer, c->state == State::kEstablished);
  Verdict verdict = EndVerdict(event);
  if (verdict == Verdict::kStale) ++metrics_.stale_rejects;
  if (c->attempt() != nullptr) {
    c->attempt()->incoming.clear();
    if (event.event == RDMA_CM_EVENT_REJECTED && event.param.conn.private_data_len != 0) {
      const auto* bytes = static_cast<const std::byte*>(event.param.conn.private_data);
      c->attempt()->incoming.assign(bytes, bytes + event.param.conn.private_data_len);
      if (options_.is_wrong_place && options_.is_wrong_place(c->attempt()->incoming)) {
        verdict = Verdict::kElsewhere;
      }
    }
  }
  if (event.event == RDMA_CM_EVENT_DISCONNECTED) {
    if (c->state == State::kClosing && event.status != 0) ++metrics_.unanswered_closes;
    Passage& passage = PassageOf(c);
    if (passage.why.ok()) passage.why = std::move(why);
    return Handle(c, Event::kDisconnected);
  }
  EndTry(c, std::move(why), verdict);
}

void ConnectionManager::Fail(Connection* c, absl::Status why) {
  const bool counts = Next(c->state, Event::kFailed).action != Action::kIgnore;
  if (counts && PassageOf(c).why.ok()) PassageOf(c).why = std::move(why);
  Handle(c, Event::kFailed);
}

void ConnectionManager::EndTry(Connection* c, absl::Status why, Verdict verdict) {
  const bool can_retry = c->active && Next(c->state, Event::kRetryable).action != Action::kIgnore;
  if (!can_retry || !PlanNextTry(c, verdict)) return Fail(c, std::move(why));
  ++metrics_.retries;
  c->attempt()->last = std::move(why);
  Handle(c, Event::kRetryable);
}

// Returns whether to retry, and sets the pause. A name may have several addresses, and the server may listen at only one of them. The
// firmware may assign the number of a dead process again, which causes a stale reject. Silence may be only a lost message.
bool ConnectionManager::PlanNextTry(Connection* c, Verdict verdict) {
  Attempt* attempt = c->attempt();
  const bool more_addresses = attempt->next_address < attempt->addresses.size();
  attempt->pause_ns = 0;
  switch (verdict) {
    case Verdict::kFinal:
      return false;
    case Verdict::kElsewhere:
      return more_addresses;
    case Verdict::kAgain:
      if (!more_addresses) attempt->pause_ns = pacing_.DelayNs(std::max(attempt->tries, 1u));
      return true;
    case Verdict::kStale:
      --attempt->next_address;  // the address was right
      if (++attempt->stale_rejects > 1) attempt->pause_ns = pacing_.DelayNs(attempt->stale_rejects);
      return true;
  }
  return false;
}

}  // namespace sluice::cm
