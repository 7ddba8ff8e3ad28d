// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs for protected transfers. Two ports create one when either port has such a transfer. They close it when either port has
// too many queue pairs.
//
//   one                            other
//   kQueue -->                     creates its queue pair
//                                  <-- kQueue; connects
//   connects                       <-- kReady
//   kReady -->                     both may send
//   kClose -->                     starts no transfer; when started transfers have ended
//   drops its queue pair           <-- kClosed; drops its queue pair
//
// Words arrive once and in order, so a word about a new queue pair can't be taken for a word about the previous queue pair. If both ports
// create or close a queue pair at the same time, the words cross, with the same result.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "middleware/bulk/peer.h"
#include "middleware/bulk/port.h"
#include "middleware/bulk/refusal.h"

namespace sluice::bulk {
namespace {

using Kind = PortWord::Kind;

// Returns the number of buffers for notices. More than the peer may have in flight, because it continues while this side processes
// received notices.
uint32_t NoticeBuffers(const PortOptions& options) {
  constexpr uint32_t kMost = 1024;
  return std::max(options.max_pieces_in_flight, std::min(16 * options.max_pieces_in_flight, kMost));
}

}  // namespace

// Takes at most one step. Returns the number of steps, 0 or 1.
int Port::AdvanceSigned(Peer& peer) {
  SignedWay& way = peer.way;
  if (way.mute && mover_->CanSay(peer.id.index)) way.mute = false;
  if (way.busy || way.dropped || !(way.wanted || way.queue != nullptr)) return 0;
  if (way.queue == nullptr) {
    // A peer that has sent kQueue always gets an answer. Otherwise ports that all have no room would wait for each other.
    if (!way.there && signed_made_ >= options_.max_signed_peers) {
      ++signed_waiting_;
      return 0;
    }
    MakeQueue(peer);
    return 1;
  }
  if (!way.said) {
    way.said = Say(peer, {.kind = Kind::kQueue,
                          .qp_number = way.queue->address().number,
                          .notices = options_.max_pieces_in_flight,
                          .reads = way.queue->address().reads});
    if (way.said) way.awaited_ns = clock_.NowNs();
    return way.said ? 1 : 0;
  }
  if (!way.connected) {
    if (!way.there) return 0;
    ConnectQueue(peer);
    return 1;
  }
  if (!way.ready_said) {
    way.ready_said = Say(peer, {.kind = Kind::kReady});
    return way.ready_said ? 1 : 0;
  }
  const bool begun = std::ranges::any_of(peer.outgoing, [](const Outgoing* out) {
    return !IsPlain(out->request.protection) && out->posted != 0;
  });
  if (!way.close_heard || begun || way.queue->open() != 0) return 0;
  if (!Say(peer, {.kind = Kind::kClosed})) return 0;
  DropQueue(peer);
  return 1;
}

// Returns true if the queue pair is up, is not being closed, and no transfer of this side uses it or waits for it.
bool Port::MayClose(const Peer& peer) const {
  const SignedWay& way = peer.way;
  return peer.state == Peer::State::kUp && way.up() && way.ready_said && !way.close_said &&
         !way.close_heard && way.queue->open() == 0 &&
         std::ranges::none_of(
             peer.outgoing, [](const Outgoing* out) { return !IsPlain(out->request.protection); });
}

// Asks peers to close their queue pairs, while there are too many or peers wait for room: one peer per call, the least recently used
// first. If a peer does not answer within patience_ns, the port asks another peer. If no peer is left to ask and peers still wait, the
// port disconnects the peer whose next step is overdue for the longest time, after dead_peer_ns. It can't close only the queue pair:
// words about that queue pair could be taken for words about the next.
int Port::MakeRoom(int64_t now_ns) {
  room_at_ns_ = 0;
  const uint32_t waiting = std::exchange(signed_waiting_, 0);
  if (signed_made_ + waiting <= options_.max_signed_peers) return 0;
  uint32_t closing = 0;
  Peer* oldest = nullptr;
  Peer* awaited = nullptr;
  for (const auto& peer : peers_) {
    SignedWay& way = peer->way;
    const bool leaves = peer->state != Peer::State::kUp && way.exists();
    if (leaves || way.dropped || now_ns < way.close_by_ns) ++closing;
    const bool idle = MayClose(*peer);
    const bool mute = idle && !mover_->CanSay(peer->id.index);
    if (mute && !way.mute) way.awaited_ns = now_ns;
    way.mute = mute;
    if (idle && !mute && (oldest == nullptr || way.used < oldest->way.used)) oldest = peer.get();
    if (peer->state == Peer::State::kUp && way.awaited() &&
        (awaited == nullptr || way.awaited_ns < awaited->way.awaited_ns)) {
      awaited = peer.get();
    }
  }
  if (signed_made_ + waiting - closing <= options_.max_signed_peers) return 0;
  if (oldest != nullptr) {
    if (!Say(*oldest, {.kind = Kind::kClose})) return 0;
    oldest->way.close_said = true;
    oldest->way.awaited_ns = now_ns;
    oldest->way.close_by_ns = Later(now_ns, options_.patience_ns);
    return 1;
  }
  if (awaited == nullptr || waiting == 0) return 0;
  const int64_t end_ns = Later(awaited->way.awaited_ns, options_.dead_peer_ns);
  if (now_ns < end_ns) {
    room_at_ns_ = end_ns;
    return 0;
  }
  GiveUp(*awaited, Refused(absl::StatusCode::kUnavailable,
                           "the peer keeps a place for protected transfers that others wait for",
                           "it neither opened its queue pair in time, nor closed it",
                           "join the ports again; raise max_signed_peers or dead_peer_ns"));
  return 1;
}

void Port::MakeQueue(Peer& peer) {
  using Made = absl::StatusOr<std::unique_ptr<integrity::SignedQueue>>;
  auto made = std::make_shared<Made>(absl::UnknownError("not made yet"));
  const integrity::SignedQueueOptions options{.max_open = options_.max_pieces_in_flight,
                                              .max_replies = NoticeBuffers(options_),
                                              .max_transfer_bytes = options_.piece_bytes,
                                              .peer = "port " + std::to_string(peer.id.index),
                                              .offload = options_.offload,
                                              .pipelining = options_.pipelining,
                                              .channel = announcements_->channel(),
                                              .domain = peer.domain ? peer.domain->get() : nullptr};
  peer.way.busy = true;
  ++signed_made_;
  commands_.Submit(
      [this, &peer, options, made] {
        *made = integrity::SignedQueue::Create(device_, commands_, peer, options);
      },
      [this, &peer, made] {
        peer.way.busy = false;
        if (made->ok()) {
          ++counters_.signed_queues;
          peer.way.queue = *std::move(*made);
          peer.way.used = ++uses_;
          peer.way.awaited_ns = clock_.NowNs();
          if (peer.state != Peer::State::kUp) peer.way.queue->Fail(peer.why);
          return;
        }
        // Transfers that wait for the queue pair fail, and a later transfer retries. If the peer has sent kQueue, it waits for an
        // answer: there is no word for a failure, so the peer is disconnected.
        --signed_made_;
        peer.way.wanted = false;
        if (peer.way.there) return GiveUp(peer, made->status());
        for (Outgoing* out : peer.outgoing) {
          if (!IsPlain(out->request.protection) && out->status.ok()) out->status = made->status();
        }
      });
}

void Port::ConnectQueue(Peer& peer) {
  SignedWay& way = peer.way;
  auto status = std::make_shared<absl::Status>();
  way.busy = true;
  const integrity::QueueAddress there = {
      .number = way.there->qp_number, .gid = peer.gid, .lid = peer.lid, .reads = way.there->reads};
  commands_.Submit([queue = way.queue.get(), there, status] { *status = queue->Connect(there); },
                   [this, &peer, status] {
                     peer.way.busy = false;
                     peer.way.connected = true;
                     peer.way.awaited_ns = clock_.NowNs();
                     if (peer.state != Peer::State::kUp) {
                       peer.way.queue->Fail(peer.why);
                     } else if (!status->ok()) {
                       GiveUp(peer, *status);
                     }
                   });
}

// Processes the notices that have arrived. A peer that observes its window has sent no more than there are buffers.
void Port::ReadQueue(Peer& peer) {
  const uint32_t most = 2 * NoticeBuffers(options_);
  for (uint32_t i = 0; i < most && peer.polled() && peer.way.queue->Poll() != 0; ++i) {
  }
}

// Closes the queue pair, when neither side has requests in flight on it. Processes the received notices first.
void Port::DropQueue(Peer& peer) {
  ReadQueue(peer);
  if (peer.state != Peer::State::kUp) return;
  peer.way.dropped = true;
  peer.way.there.reset();
  ++counters_.signed_closed;
  peer.way.queue->Fail(Refused(absl::StatusCode::kUnavailable, "the queue pair was closed"));
}

void Port::OnQueueDown(Peer& peer, const absl::Status& why) {
  peer.way.ended = true;  // EndQueue() destroys the queue later: not possible within its callback
  if (!peer.way.dropped) GiveUp(peer, why);
}

// Frees a closed queue of a connected peer in a command, because this blocks. The peer may then get another queue pair.
int Port::EndQueue(Peer& peer) {
  if (!peer.way.ended || !peer.way.dropped || peer.state != Peer::State::kUp) return 0;
  commands_.Submit([queue = std::move(peer.way.queue)]() mutable { queue.reset(); }, [] {});
  --signed_made_;
  SignedWay next;
  next.there = peer.way.there;  // set if the peer has already created another queue pair
  next.wanted = next.there.has_value();
  peer.way = std::move(next);
  return 1;
}

void Port::OnQueueWord(Peer& peer, const PortWord& word) {
  SignedWay& way = peer.way;
  switch (word.kind) {
    case Kind::kNotice:
      return;
    case Kind::kQueue:
      if (way.there) {
        GiveUp(peer, Refused(absl::StatusCode::kUnavailable, "a peer has a second queue pair",
                             "one of the two sides breaks the protocol", "join the ports again"));
        return mover_->CutOff(peer.id.index);
      }
      way.there = {.qp_number = word.qp_number, .notices = word.notices, .reads = word.reads};
      way.wanted = true;
      return;
    case Kind::kReady:
      way.ready_heard = true;
      return;
    case Kind::kClose:
      // A repeated kClose does not extend the time.
      if (way.queue == nullptr || way.dropped || way.close_heard) return;
      way.close_heard = true;
      way.close_by_ns = Later(clock_.NowNs(), options_.patience_ns);
      return;
    case Kind::kClosed:
      // If both sides have sent kClose, the queue pair may be dropped already.
      if (way.close_said && way.connected && !way.busy && !way.dropped) DropQueue(peer);
      return;
  }
}

}  // namespace sluice::bulk
