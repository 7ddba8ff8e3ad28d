// SPDX-License-Identifier: Apache-2.0
//
// What happens to the device, and what becomes of peers then: docs/decisions/0048, and 0014 for endpoints.
#include <memory>
#include <utility>

#include "transport/base/error.h"
#include "transport/onesided/mover.h"

namespace sluice::onesided {

// What peers send to, made by a command.
struct Mover::Renewed {
  uint64_t access_key;  // the polling thread's to read, so before the command
  bool moved = true;
  absl::Status status;
  ibv_gid gid = {};
  uint8_t sgid_index = 0;
  receive::Target target;
};

void Mover::OnDeviceEvent(const device::DeviceEvent& event) {
  if (!dead_.ok()) return;
  switch (event.reaction) {
    case device::Reaction::kBroken:
      return Break(device_.Usable());
    case device::Reaction::kAddresses:
      return RenewAddress();
    case device::Reaction::kTarget:
      // A DCI that has stopped flushes its requests, which the queue sees; it needs no event.
      if (event.object == receive_->target()) return RenewTarget();
      for (const Way& way : ways_) {
        if (way.apart && event.object == way.apart->target.qp.get()) {
          return Close(PlaceOf(way), TargetStopped(), /*goodbye=*/true);
        }
      }
      return;
    case device::Reaction::kPortDown:  // peers stay while their traffic arrives
    case device::Reaction::kPortUp:
    case device::Reaction::kCount:
      return;
  }
}

// Most changes are of somebody else's address, or bring one more. When our own has moved, peers send to where nobody is.
void Mover::RenewAddress() {
  auto made = std::make_shared<Renewed>(Renewed{.access_key = receive_->access_key()});
  commands_.Submit(
      [this, made] {
        made->moved = device_.RefreshAddress() == device::Device::Address::kMoved;
        if (!made->moved) return;
        queue_->UseAddress(device_.path().sgid_index);
        MakeTarget(made.get());
      },
      [this, made] {
        if (!made->moved) return;
        UseTarget(made.get(),
                  base::Error(absl::StatusCode::kUnavailable, "the address of this host changed",
                              {.layer = "onesided",
                               .operation = "poll",
                               .cause = "its GID left the table of " + device_.name() +
                                        ", or has another place there",
                               .remedy = "join the two sides again",
                               .retry_safe = false}));
      });
}

absl::Status Mover::TargetStopped() const {
  return base::Error(absl::StatusCode::kUnavailable, "a receive queue of this side stopped",
                     {.layer = "onesided",
                      .operation = "receive",
                      .cause = "device " + device_.name() + " reported an error on it",
                      .remedy = "join the two sides again: it is made anew",
                      .retry_safe = false});
}

void Mover::RenewTarget() {
  const absl::Status why = TargetStopped();
  CloseAll(why);
  auto made = std::make_shared<Renewed>(Renewed{.access_key = receive_->access_key()});
  commands_.Submit([this, made] { MakeTarget(made.get()); },
                   [this, made, why] { UseTarget(made.get(), why); });
}

void Mover::MakeTarget(Renewed* made) const {
  made->sgid_index = device_.path().sgid_index;
  const int error_number =
      device_.api().query_gid(device_.context(), device_.path().port, made->sgid_index, &made->gid);
  if (error_number != 0) {
    made->status = base::ErrnoError(error_number, "ibv_query_gid",
                                    {.layer = "onesided", .operation = "receive"});
    return;
  }
  auto target = receive_->MakeTarget(device_, made->access_key);
  made->status = target.status();
  if (target.ok()) made->target = *std::move(target);
}

// Those who came meanwhile know the old one.
void Mover::UseTarget(Renewed* made, const absl::Status& why) {
  if (!made->status.ok()) {
    return Break(base::Prefix(made->status, "a receive queue can't be made anew"));
  }
  gid_ = made->gid;
  sgid_index_ = made->sgid_index;
  verbs::Qp old = receive_->Replace(std::move(made->target));
  commands_.Submit([old = std::move(old)]() mutable { old.qp.reset(); }, [] {});
  CloseAll(why);
}

// Who can be reached still is told.
void Mover::CloseAll(const absl::Status& why) {
  for (const Way& way : ways_) Close(PlaceOf(way), why, /*goodbye=*/true);
}

// Nothing is told to peers, and nothing waited for but that the queue pairs are gone: then no memory is reached any more.
void Mover::Break(const absl::Status& why) {
  if (!dead_.ok()) return;
  OnQueueDead(why);
  queue_->Abandon(why);
}

}  // namespace sluice::onesided
