// SPDX-License-Identifier: Apache-2.0
//
// Events of the device, and their effect on peers: docs/decisions/0014.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

// DCTs of all receive queues, which a command creates.
struct EndpointImpl::Targets {
  std::vector<uint64_t> keys;  // the polling thread draws them before the command
  absl::Status status;
  std::vector<receive::Target> of_queues;  // in the order of queues_by_tag_
};

absl::Status EndpointImpl::Health() const { return ended_.ok() ? device_.Usable() : ended_; }

void EndpointImpl::CheckDevice() {
  device_.ReadAsyncEvents([this](const device::DeviceEvent& event) {
    switch (event.reaction) {
      case device::Reaction::kBroken:
        return OnQueueDead(device_.Usable());
      case device::Reaction::kAddresses:
        return RenewPaths();
      case device::Reaction::kTarget:
        // A DCI that has stopped flushes its requests. The send queue detects that without an event.
        if (!IsTarget(event.object)) return;
        return RenewTargets(
            base::Error(absl::StatusCode::kUnavailable, "a receive queue of this side stopped",
                        {.layer = "receive",
                         .operation = "receive",
                         .cause = "device " + device_.name() + " reported an error of this queue",
                         .remedy = "reconnect: this side has created a new receive queue",
                         .retry_safe = false}));
      case device::Reaction::kPortDown:  // Health() reports it, and nothing else changes
        return log_.Say(base::Severity::kWarning, "port down", "",
                        "the port of " + device_.name() + " is down");
      case device::Reaction::kPortUp:
        return log_.Say(base::Severity::kInfo, "port up", "",
                        "the port of " + device_.name() + " is up");
      case device::Reaction::kCount:
        return;
    }
  });
}

// Most changes concern other addresses, or add an address. If the address of this endpoint has moved,
// peers send to an old address, and answers would carry a wrong address.
void EndpointImpl::RenewPaths() {
  auto made = NewTargets();
  auto moved = std::make_shared<bool>(false);
  commands_.Submit(
      [this, made, moved] {
        handles_->Renew();
        *moved = device_.RefreshAddress() == device::Device::Address::kMoved;
        if (!*moved) return;
        if (rc_ != nullptr) return queue_->UseAddress(device_.path().sgid_index);
        queue_->UseAddress(device_.path().sgid_index);
        profiles_->UseAddress(device_.path().sgid_index);
        MakeTargets(made.get());
      },
      [this, made, moved] {
        if (!*moved) return;
        UseTargets(made.get(),
                   base::Error(absl::StatusCode::kUnavailable, "the address of this host changed",
                               {.layer = "device",
                                .operation = "poll",
                                .cause = "the GID of this port left the GID table of " +
                                         device_.name() + ", or has another index there",
                                .remedy = "reconnect"}));
      });
}

void EndpointImpl::RenewTargets(const absl::Status& why) {
  log_.Say(base::Severity::kWarning, "receive queue stopped", "", std::string(why.message()));
  FailAll(why);  // all peers send to a queue that has stopped
  auto made = NewTargets();
  commands_.Submit([this, made] { MakeTargets(made.get()); },
                   [this, made, why] { UseTargets(made.get(), why); });
}

bool EndpointImpl::IsTarget(const void* object) const {
  return rc_ == nullptr &&
         std::any_of(queues_by_tag_.begin(), queues_by_tag_.end(),
                     [&](const receive::ReceiveQueue* queue) { return queue->target() == object; });
}

// Draws new keys: an offender may know the present keys, and their replacement may be in progress (Renewal).
std::shared_ptr<EndpointImpl::Targets> EndpointImpl::NewTargets() {
  auto targets = std::make_shared<Targets>();
  for (size_t i = 0; i < queues_by_tag_.size(); ++i) targets->keys.push_back(random_.Next64());
  return targets;
}

void EndpointImpl::MakeTargets(Targets* made) const {
  for (size_t i = 0; i < queues_by_tag_.size(); ++i) {
    auto target = queues_by_tag_[i]->MakeTarget(device_, made->keys[i]);
    if (!target.ok()) {
      made->status = target.status();
      return;
    }
    made->of_queues.push_back(std::move(*target));
  }
}

void EndpointImpl::UseTargets(Targets* made, const absl::Status& why) {
  if (!made->status.ok()) {
    return OnQueueDead(base::Prefix(made->status, "a receive queue can't be created again"));
  }
  for (size_t i = 0; rc_ == nullptr && i < queues_by_tag_.size(); ++i) {
    Give(queues_by_tag_[i]->Replace(std::move(made->of_queues[i])));
  }
  FailAll(why);  // includes peers that connected meanwhile, and know the old DCTs
}

void EndpointImpl::Give(verbs::Qp target) {
  commands_.Submit([target = std::move(target)]() mutable { target.qp.reset(); }, [] {});
}

void EndpointImpl::OnListenerDown(const absl::Status& why) { OnQueueDead(why); }

void EndpointImpl::OnQueueDead(const absl::Status& why) {
  if (ended_.ok()) {
    ended_ = why;
    log_.Say(base::Severity::kError, "device failed", "", std::string(why.message()));
  }
  FailAll(why);
}

void EndpointImpl::FailAll(const absl::Status& why) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].state != peer::State::kFree) Fail(&peers_[i], why);
  }
}

}  // namespace sluice::endpoint
