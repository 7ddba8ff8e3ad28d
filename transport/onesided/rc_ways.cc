// SPDX-License-Identifier: Apache-2.0
//
// Peers of a device without DC: each has an RC queue pair, which is created with the place and connected with the peer's address.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/onesided/mover.h"

namespace sluice::onesided {
namespace {

constexpr int kRights = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;

// A token is random and belongs to one address. So packets of an earlier queue pair with the same number are not taken for packets of
// this one.
uint32_t FirstPsn(uint64_t token) { return token & 0xffffff; }

}  // namespace

absl::Status Mover::OpenQueue(Way& way) {
  auto qp = rc_->Make(receive_->cq(), receive_->srq(way.receive_queue));
  if (!qp.ok()) return qp.status();
  absl::Status status = rc_->Attach(&way.target, *std::move(qp));
  if (!status.ok()) return status;
  way.target.unacknowledged = UINT32_MAX;
  queue_->Open(&way.target);
  return absl::OkStatus();
}

// The peer gets its rights before it learns from a message, or from the answer of the user, that this side is connected.
absl::Status Mover::ConnectQueue(Way& way, const Address& peer) {
  verbs::RcRoute route{.ah = verbs::AddressVector(path_),
                       .number = peer.dctn,
                       .receive_psn = FirstPsn(way.token),
                       .send_psn = FirstPsn(peer.token),
                       .reads = peer.reads};
  std::memcpy(route.ah.grh.dgid.raw, peer.gid.data(), peer.gid.size());
  route.ah.dlid = peer.lid;
  ibv_qp* const qp = rc_->qp(way.target);
  absl::Status status = rc_->Connect(qp, route);
  if (status.ok()) status = rc_->Allow(qp, kRights);
  if (status.ok()) return status;
  return base::Prefix(status, "the peer's address can't be reached from this port");
}

void Mover::OnQueueStopped(const void* qp) {
  for (const Way& way : ways_) {
    if (!HasQueue(way) || rc_->IsEnding(way.target) || rc_->qp(way.target) != qp) continue;
    NoteStopped(PlaceOf(way), QueueStopped());
  }
}

absl::Status Mover::QueueStopped() const {
  return base::Error(absl::StatusCode::kUnavailable, "the queue pair of the peer stopped",
                     {.layer = "onesided",
                      .operation = "receive",
                      .cause = "a request of the peer was refused, or device " + device_.name() +
                               " reported an error",
                      .remedy = "join the two sides again",
                      .retry_safe = false});
}

// The completion of a request, which is often found after the event, gives the better reason.
void Mover::NoteStopped(uint32_t place, const absl::Status& why) {
  const auto known = std::ranges::find(stopped_, place, &Stopped::place);
  if (known == stopped_.end()) {
    stopped_.push_back({place, why});
  } else if (ways_[place].target.closed) {
    known->why = why;
  }
}

// Poll() calls it when it has read all messages that arrived before the queue pairs stopped.
void Mover::EndStopped() {
  for (const Stopped& stopped : std::exchange(stopped_, {})) {
    if (stopped.due) {
      Close(stopped.place, stopped.why, /*goodbye=*/false);
    } else {
      stopped_.push_back(stopped);
    }
  }
}

absl::Status Mover::NoDomain() const {
  return base::Error(absl::StatusCode::kUnimplemented,
                     "a peer can't have a protection domain of its own here",
                     {.layer = "onesided",
                      .operation = "create",
                      .cause = device_.name() + " has RC queue pairs instead of DC, which all are "
                                                "in one protection domain",
                      .remedy = "use a device with DC, or join the peer with Reach::kShared"});
}

absl::Status Mover::UnlikeTransports() const {
  return base::Error(
      absl::StatusCode::kFailedPrecondition, "the two sides can't be joined",
      {.layer = "onesided",
       .operation = "connect",
       .cause = rc_ != nullptr ? "this side has RC queue pairs, the peer DC"
                               : "this side has DC, the peer RC queue pairs",
       .remedy = "use devices of one kind on both sides; a device name with /rc at its end, as in "
                 "mlx5_0/rc, selects RC"});
}

}  // namespace sluice::onesided
