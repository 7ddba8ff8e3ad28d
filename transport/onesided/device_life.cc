// SPDX-License-Identifier: Apache-2.0
//
// Events of the device, and their effect on peers: docs/decisions/0048, and 0014 for endpoints.
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/onesided/mover.h"

namespace sluice::onesided {

void Mover::OnDeviceEvent(const device::DeviceEvent& event) {
  if (!dead_.ok()) return;
  switch (event.reaction) {
    case device::Reaction::kBroken:
      return Break(device_.Usable());
    case device::Reaction::kAddresses:
      return RenewAddress();
    case device::Reaction::kTarget:
      if (rc_ != nullptr) return OnQueueStopped(event.object);
      // A stopped DCI flushes its requests. The queue sees their completions and needs no event.
      if (const auto place = receive_->PlaceOf(event.object)) {
        Close(*place, TargetStopped(), /*goodbye=*/true);
        CutOff(*place);
      }
      return;
    case device::Reaction::kPortDown:  // peers stay while their traffic arrives
    case device::Reaction::kPortUp:
    case device::Reaction::kCount:
      return;
  }
}

// Most changes concern another address, or add an address. If the mover's own address has changed, peers send to an address that is no
// longer valid. So the mover disconnects all peers, with a goodbye to each peer that it can still reach. Peers that are opened while the
// command runs have DCTs of the old address, and end as well.
void Mover::RenewAddress() {
  struct Found {
    bool moved = false;
    uint8_t sgid_index = 0;
    ibv_gid gid = {};
    absl::Status status;
  };
  auto found = std::make_shared<Found>();
  commands_.Submit(
      [this, found] {
        found->moved = device_.RefreshAddress() == device::Device::Address::kMoved;
        if (!found->moved) return;
        found->sgid_index = device_.path().sgid_index;
        if (rc_ == nullptr) queue_->UseAddress(found->sgid_index);
        const int error_number = device_.api().query_gid(device_.context(), device_.path().port,
                                                         found->sgid_index, &found->gid);
        if (error_number == 0) return;
        found->status = base::ErrnoError(error_number, "ibv_query_gid",
                                         {.layer = "onesided", .operation = "receive"});
      },
      [this, found] {
        if (!found->moved) return;
        if (!found->status.ok()) {
          return Break(base::Prefix(found->status, "the address of this host can't be read"));
        }
        if (rc_ != nullptr)
          queue_->UseAddress(found->sgid_index);  // Open() and Connect() run on this thread
        gid_ = found->gid;
        path_.sgid_index = found->sgid_index;
        for (const Way& way : ways_) Close(PlaceOf(way), AddressMoved(), /*goodbye=*/true);
      });
}

absl::Status Mover::AddressMoved() const {
  return base::Error(absl::StatusCode::kUnavailable, "the address of this host changed",
                     {.layer = "onesided",
                      .operation = "poll",
                      .cause = "the GID of this port left the GID table of " + device_.name() +
                               ", or has another index there",
                      .remedy = "join the two sides again",
                      .retry_safe = false});
}

absl::Status Mover::TargetStopped() const {
  return base::Error(absl::StatusCode::kUnavailable, "a receive queue of this side stopped",
                     {.layer = "onesided",
                      .operation = "receive",
                      .cause = "device " + device_.name() + " reported an error on it",
                      .remedy = "join the two sides again",
                      .retry_safe = false});
}

// Ends all peers without a goodbye, as soon as the queue pairs are destroyed: then no peer can access memory.
void Mover::Break(const absl::Status& why) {
  if (!dead_.ok()) return;
  OnQueueDead(why);
  queue_->Abandon(why);
}

}  // namespace sluice::onesided
