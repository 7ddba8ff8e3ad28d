// SPDX-License-Identifier: Apache-2.0
//
// The data path: reserve, commit, receive, credits.
#include <endian.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/queue/completion_error.h"

namespace sluice::endpoint {
namespace {

constexpr size_t kLineBytes = 64;
// Maximum number of rounds of ReceiveAll(): enough for all messages of one peer while other peers are busy.
constexpr uint32_t kMaxLastLooks = 64;

[[gnu::noinline, gnu::cold]] absl::Status NotUp(const Peer* peer) {
  return base::Error(
      absl::StatusCode::kUnavailable, peer == nullptr ? "no such peer" : "peer is not connected",
      {.layer = "endpoint",
       .peer = peer == nullptr ? std::string_view() : peer->address(),
       .operation = "send",
       .cause = peer == nullptr ? "the peer disconnected earlier"
                                : "the peer is still connecting, or is disconnecting",
       .remedy = "wait for OnPeerUp, or reconnect",
       .retry_safe = true});
}

[[gnu::noinline, gnu::cold]] absl::Status TooLong(const Peer& peer, uint32_t size_bytes,
                                                  uint32_t own_limit) {
  const char* cause = "the peer's max_message_bytes, which is lower than this side's";
  if (peer.max_message_bytes == own_limit) {
    cause = "this side's max_message_bytes";
  }
  return base::Error(absl::StatusCode::kInvalidArgument,
                     "message of " + std::to_string(size_bytes) + " bytes is over the limit of " +
                         std::to_string(peer.max_message_bytes) + " bytes",
                     {.layer = "endpoint",
                      .peer = peer.address(),
                      .operation = "send",
                      .cause = cause,
                      .remedy = "send less, or raise max_message_bytes on both sides",
                      .retry_safe = true});
}

SendBuffer BufferOf(const Room& room) {
  return {.data = room.data, .capacity_bytes = room.capacity_bytes, .slot = room.slot};
}

}  // namespace

absl::StatusOr<SendBuffer> EndpointImpl::Reserve(PeerId id, uint32_t size_bytes) {
  if (Peer* peer = FindUp(id)) [[likely]] {
    SendRing& ring = rings_[peer->ring];
    if (ring.MayReserve(peer->send, size_bytes)) [[likely]] {
      return BufferOf(ReserveCell(peer, &ring, size_bytes));
    }
  }
  return ReserveSlowly(Find(id), id, size_bytes);
}

Room EndpointImpl::TryReserve(PeerId id, uint32_t size_bytes) {
  Peer* const peer = FindUp(id);
  if (peer == nullptr) [[unlikely]]
    return {};
  SendRing& ring = rings_[peer->ring];
  if (!ring.MayReserve(peer->send, size_bytes)) [[unlikely]]
    return TryReserveSlowly(peer, id, size_bytes);
  return ReserveCell(peer, &ring, size_bytes);
}

Room EndpointImpl::TryReserveSlowly(Peer* peer, PeerId id, uint32_t size_bytes) {
  if (size_bytes > peer->max_message_bytes || peer->send.available() == 0) return {};
  if (SendRing* ring = RingTo(*peer)) {
    const auto message_bytes = static_cast<uint32_t>(size_bytes + peer::kPrefixBytes);
    if (MayReserveCell(*peer, ring, message_bytes)) return ReserveCell(peer, ring, size_bytes);
  }
  const uint32_t slot =
      short_of_buffers_ && !MayTakeBuffer(id) ? queue::kNoSlot : slots_->Take(/*control=*/false);
  if (slot == queue::kNoSlot) return {};
  peer->send.Use();
  return {.data = (*slots_)[slot].data + peer::kPrefixBytes,
          .capacity_bytes = peer->max_message_bytes,
          .slot = slot};
}

absl::StatusOr<SendBuffer> EndpointImpl::ReserveSlowly(Peer* peer, PeerId id, uint32_t size_bytes) {
  if (peer == nullptr || peer->state != peer::State::kUp) return NotUp(peer);
  if (size_bytes > peer->max_message_bytes) {
    return TooLong(*peer, size_bytes, options_.max_message_bytes);
  }
  if (peer->send.available() == 0) {
    Block(peer);
    return no_credit_;
  }
  const Room room = TryReserveSlowly(peer, id, size_bytes);
  if (room.data == nullptr) {
    short_of_buffers_ = true;
    Block(peer);
    return no_buffer_;
  }
  return BufferOf(room);
}

void EndpointImpl::Commit(PeerId id, SendBuffer buffer, uint32_t length_bytes, bool report_soon) {
  assert(length_bytes <= buffer.capacity_bytes);
  CommitRoom(id,
             {.data = buffer.data, .capacity_bytes = buffer.capacity_bytes, .slot = buffer.slot},
             length_bytes, report_soon);
}

void EndpointImpl::CommitRoom(PeerId id, Room room, uint32_t length_bytes, bool report_soon) {
  Peer* peer = FindUp(id);
  if (peer != nullptr) [[likely]] {
    SendRing& ring = rings_[peer->ring];
    const auto message_bytes = static_cast<uint32_t>(length_bytes + peer::kPrefixBytes);
    if (ring.Holds(room.slot, message_bytes)) [[likely]] {
      if (report_soon || !ring.GoesOn(peer->send)) return JoinBatch(peer, &ring, report_soon);
      return AddToBatch(peer, &ring, ring.reserved_message, message_bytes, /*asks=*/false);
    }
  }
  if (slots_->is_cell(room.slot)) {
    return CommitCell(peer, room.slot, length_bytes, report_soon);
  }
  CommitSlot(peer, room.slot, length_bytes, report_soon);
}

// `peer`: null if it is no longer up.
void EndpointImpl::CommitSlot(Peer* peer, uint32_t index, uint32_t length_bytes, bool report_soon) {
  queue::Slot& slot = (*slots_)[index];
  slot.length_bytes = length_bytes + static_cast<uint32_t>(peer::kPrefixBytes);
  if (peer == nullptr) {
    slot.use = queue::SlotUse::kHeld;  // the peer went down meanwhile; OnPeerDown() reports it
    return;
  }
  CountUnacknowledged(peer);
  report_soon = report_soon || peer->send.available() == 0 || queue_->scarce(peer->target);
  report_soon = report_soon && MustAsk(peer);
  slot.signal = slot.signal || report_soon;  // a dead queue is detected by missing completions
  WritePrefix(peer, index, peer::Kind::kData, report_soon, peer->committed++);
  if (peer->lanes != 0) WriteIntoLane(peer, &slot);
  ++counters_.messages_sent;
  queue_->Post(&peer->target, index);
}

Endpoint::SlotRange EndpointImpl::NeverReleased() const {
  return {.first = slots_->first_cell(), .count = slots_->first_bulk() - slots_->first_cell()};
}

void EndpointImpl::Cancel(PeerId id, SendBuffer buffer) {
  Peer* peer = Find(id);
  if (peer != nullptr && peer->state != peer::State::kUp) peer = nullptr;
  if (peer != nullptr) peer->send.Return();
  if (slots_->is_cell(buffer.slot)) {
    CancelCell(peer, buffer.slot);
  } else {
    slots_->Give(buffer.slot);
  }
  if (peer != nullptr) CountUnacknowledged(peer);
}

bool EndpointImpl::PostControl(Peer* peer, peer::Kind kind, bool notify, uint32_t most) {
  const uint32_t slot = TakeControl(*peer, most);
  if (slot == queue::kNoSlot) return false;
  WritePrefix(peer, slot, kind, false,
              kind == peer::Kind::kGoodbye ? peer->committed : uint16_t{0});
  (*slots_)[slot].length_bytes = peer::kPrefixBytes;
  (*slots_)[slot].notify = notify;
  (*slots_)[slot].signal = true;  // may be the last for long: an idle peer holds no stream
  queue_->Post(&peer->target, slot);
  return true;
}

bool EndpointImpl::PostBody(Peer* peer, peer::Kind kind, peer::Bytes body) {
  const uint32_t slot = TakeControl(*peer);
  if (slot == queue::kNoSlot) return false;
  WritePrefix(peer, slot, kind);
  std::copy(body.begin(), body.end(), (*slots_)[slot].data + peer::kPrefixBytes);
  (*slots_)[slot].length_bytes = static_cast<uint32_t>(peer::kPrefixBytes + body.size());
  (*slots_)[slot].signal = true;
  // After an answer, nothing more is announced in the previous mode: OnAnnounced() relies on that with RC.
  (*slots_)[slot].in_order = kind == peer::Kind::kLaneAnswer;
  queue_->Post(&peer->target, slot);
  return true;
}

bool EndpointImpl::PostTerms(Peer* peer, peer::Kind kind, const peer::Terms& terms,
                             const peer::Key& key, bool notify) {
  // A peer has one message of its handshake at a time, and gets no other message before it.
  const uint32_t slot = TakeControl(*peer, kControlSlots);
  if (slot == queue::kNoSlot) return false;
  WritePrefix(peer, slot, kind);
  std::byte* bytes = (*slots_)[slot].data;
  const auto sealed = peer::SealTerms(terms, key, {bytes, peer::kPrefixBytes});
  std::copy(sealed.begin(), sealed.end(), bytes + peer::kPrefixBytes);
  (*slots_)[slot].length_bytes = peer::kPrefixBytes + peer::kSealedTermsBytes;
  (*slots_)[slot].notify = notify;
  (*slots_)[slot].signal = true;
  queue_->Post(&peer->target, slot);
  return true;
}

bool EndpointImpl::Judge(Peer* peer, bool taken) {
  if (!taken) {
    peer->receive.Unconsumed();
    peer->report_requested_by_peer = true;  // the peer may lack the last report
    return true;
  }
  if (closed_) return true;  // then duplicates count as new
  EndOverdrawn(peer);
  return false;
}

void EndpointImpl::Block(Peer* peer) {
  if (peer->blocked) return;
  peer->blocked = true;
  blocked_.push_back(peer);
  if (peer->send.window(peer->remote_window) == 0) AskForWindow(peer);
  if (!ask_timer_.armed()) OnAskTime(&ask_timer_, this);
}

// Called while buffers are short. Waiting peers are served in turn. Other peers must not take the buffers that were freed for them.
bool EndpointImpl::MayTakeBuffer(PeerId id) {
  if (blocked_.empty()) return true;
  if (!(turn_ == id) || turn_buffers_ == 0) return false;
  --turn_buffers_;
  return true;
}

bool EndpointImpl::SomeoneMayWrite() const {
  if (slots_->free_data() == 0) return false;
  return std::any_of(blocked_.begin(), blocked_.end(),
                     [](const Peer* peer) { return peer->send.available() != 0; });
}

int EndpointImpl::TellWritable() {
  int told = 0;
  // Each peer has one turn, so that a peer that blocks again at once does not delay other peers.
  for (size_t turns = blocked_.size(); turns > 0 && !blocked_.empty(); --turns) {
    if (slots_->free_data() == 0) break;
    Peer* peer = blocked_.front();
    blocked_.pop_front();
    if (peer->send.available() == 0) {
      blocked_.push_back(peer);
      continue;
    }
    peer->blocked = false;
    if (peer->state != peer::State::kUp || closed_) continue;
    ++told;
    turn_ = peer->id();
    turn_buffers_ = std::max<uint32_t>(slots_->free_data() / static_cast<uint32_t>(turns), 1);
    handler_->OnWritable(turn_);
    turn_ = {};
  }
  // Every peer has had its turn.
  if (short_of_buffers_ && slots_->free_data() != 0) short_of_buffers_ = false;
  return told;
}

receive::ReceiveQueue& EndpointImpl::QueueOf(const ibv_wc& wc) const {
  return *queues_by_tag_[wc.wr_id >> 32];
}

int EndpointImpl::Receive() {
  if (receiving_ || (!arrivals_taken() && !TakeArrivals())) return 0;
  const ibv_wc* completions = &arrivals_[arrivals_next_];
  const int count =
      static_cast<int>(std::min<uint32_t>(arrivals_end_ - arrivals_next_, kReceiveBatch));
  arrivals_next_ += static_cast<uint32_t>(count);
  receiving_ = true;
  // Prefetches the first cache lines of all messages, so that the cache misses overlap.
  for (int i = 0; i < count; ++i) {
    const std::byte* bytes =
        QueueOf(completions[i]).buffer(static_cast<uint32_t>(completions[i].wr_id));
    __builtin_prefetch(bytes);
    __builtin_prefetch(bytes + kLineBytes);
  }
  for (int i = 0; i < count; ++i) OnReceived(completions[i]);
  receiving_ = false;
  return count;
}

// After a full batch there may be more completions. All are taken before a grant is written (docs/decisions/0046).
bool EndpointImpl::TakeArrivals() {
  arrivals_next_ = arrivals_end_ = 0;
  int got = 0;
  do {
    const uint32_t room = std::min<uint32_t>(arrivals_size_ - arrivals_end_, kReceiveBatch);
    got = ibv_poll_cq(receive_cq_.get(), static_cast<int>(room), &arrivals_[arrivals_end_]);
    if (got < 0) [[unlikely]] {
      if (ended_.ok()) OnQueueDead(queue::PollError("endpoint", "receive"));
      break;
    }
    arrivals_end_ += static_cast<uint32_t>(got);
  } while (got == kReceiveBatch && arrivals_end_ < arrivals_size_);
  if (arrivals_end_ == 0) return false;
  if (++look_ == 0) {
    for (size_t i = 0; i < peers_.size(); ++i) peers_[i].receive.ForgetLook();
    look_ = 1;
  }
  return true;
}

bool EndpointImpl::ReceiveAll() {
  for (uint32_t looks = 0; looks < kMaxLastLooks; ++looks) {
    if (Receive() == 0 && LookAtLanes() == 0) return true;
  }
  return false;
}

void EndpointImpl::OnReceived(const ibv_wc& wc) {
  receive::ReceiveQueue& queue = QueueOf(wc);
  const uint32_t index = static_cast<uint32_t>(wc.wr_id);
  const std::byte* bytes = queue.buffer(index);
  peer::Prefix prefix;
  if (wc.status != IBV_WC_SUCCESS) {
    ++counters_.receive_errors;
  } else if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    OnAnnounced(wc);
  } else if (!peer::LoadPrefix(bytes, wc.byte_len, &prefix)) {
    ++counters_.dropped_malformed;
    EndSender(wc);
  } else if (prefix.peer_index >= peers_.size() ||
             peers_[prefix.peer_index].token != prefix.token ||
             peers_[prefix.peer_index].tenant != wc.wr_id >> 33 ||
             peers_[prefix.peer_index].state == peer::State::kFree ||
             (rc_ != nullptr && !IsOfPeer(wc, peers_[prefix.peer_index]))) {
    ++counters_.dropped_unknown;
    EndSender(wc);
  } else if (rc_ != nullptr &&
             (prefix.kind == peer::Kind::kTargets || prefix.kind == peer::Kind::kTargetsTaken)) {
    ++counters_.dropped_malformed;  // RC has no targets to replace
    EndSender(wc);
  } else {
    Peer* peer = &peers_[prefix.peer_index];
    // An RC queue pair has one receive queue for data and control.
    const bool data =
        rc_ != nullptr ? prefix.kind == peer::Kind::kData : &queue == ReceptionOf(*peer).data.get();
    if (peer->state == peer::State::kUp) {
      if (!data) ++counters_.control_received;
      const peer::Bytes body(bytes + peer::kPrefixBytes, wc.byte_len - peer::kPrefixBytes);
      if (!CountArrival(peer, data) || !Hear(peer, prefix)) {
        // The peer was ended.
      } else if (prefix.kind == peer::Kind::kData && data) {
        if (peer->lanes != 0) return OnSentData(peer, prefix.number, wc);
        OnData(peer, body.data(), static_cast<uint32_t>(body.size()));
        if (lanes_wanted_) CountForLane(peer, prefix.token);
      } else if (prefix.kind == peer::Kind::kCredits) {
        OnReport(peer);
      } else if (prefix.kind == peer::Kind::kGoodbye) {
        if (AfterLane(peer, prefix.number)) OnGoodbye(peer);
      } else if (prefix.kind == peer::Kind::kProbe) {
        OnProbe(peer);
      } else if (prefix.kind == peer::Kind::kLaneAsk) {
        OnLaneAsk(peer, body);
      } else if (prefix.kind == peer::Kind::kLaneAnswer) {
        OnLaneAnswer(peer, body);
      } else if (prefix.kind == peer::Kind::kTargets) {
        OnTargets(peer, body);
      } else if (prefix.kind == peer::Kind::kTargetsTaken) {
        OnTargetsTaken(peer, body);
      } else if (prefix.kind >= peer::Kind::kWindowAsk) {
        OnWindowWord(peer, prefix.kind, body);
      }
    } else if (!data) {
      OnHandshakeMessage(peer, prefix.kind, {bytes, wc.byte_len});
    } else {
      ++counters_.dropped_unproven;
      EndSender(peer);
    }
  }
  queue.Recycle(index);
}

// Handles the prefix of a message. Returns false if the peer was ended meanwhile.
bool EndpointImpl::Hear(Peer* peer, const peer::Prefix& prefix) {
  peer->active_since_last_look = true;
  if (prefix.flags & peer::kReportSoon) peer->report_requested_by_peer = true;
  TakeGrant(peer, prefix.granted);
  return peer->token == prefix.token && peer->state == peer::State::kUp;
}

void EndpointImpl::TakeGrant(Peer* peer, uint32_t granted) {
  if (!peer->send.Grant(granted, peer->remote_window)) return;
  if (SendRing* ring = RingTo(*peer)) ring->SetLimit(peer->send, peer->remote_window);
  CountUnacknowledged(peer);
  OnReport(peer);
  queue_->Acknowledged(&peer->target);
  if (!closed_) {
    handler_->OnAcknowledged(peer->id(), peer->send.acknowledged(peer->remote_window));
  }
}

void EndpointImpl::OnData(Peer* peer, const std::byte* bytes, uint32_t size_bytes) {
  ++counters_.messages_received;
  Deliver(peer, peer->id(), bytes, size_bytes);
}

void EndpointImpl::QueueCreditReport(Peer* peer) {
  if (peer->credit_report_queued) return;
  peer->credit_report_queued = true;
  credit_reports_.push_back(peer);
}

// Called for a report, most likely the requested report. If a further report is needed, it is requested at the end of this pass,
// unless an earlier message requests it.
void EndpointImpl::OnReport(Peer* peer) {
  peer->report_requested = 0;
  if (!peer->report_needed || peer->report_queued) return;
  peer->report_queued = 1;
  report_queue_.push_back(peer);
}

void EndpointImpl::RequestReports() {
  size_t kept = 0;
  for (Peer* peer : report_queue_) {
    const bool ask = peer->state == peer::State::kUp && peer->report_needed &&
                     !peer->report_requested && peer->target.unacknowledged != 0;
    if (ask && !PostControl(peer, peer::Kind::kProbe, /*notify=*/false)) {
      report_queue_[kept++] = peer;  // it may take no control slot: retried later
      continue;
    }
    peer->report_queued = 0;
    if (!ask) continue;
    peer->report_requested = 1;
    peer->report_needed = 0;
  }
  report_queue_.resize(kept);
}

void EndpointImpl::OnGoodbye(Peer* peer) {
  Fail(peer,
       base::Error(absl::StatusCode::kUnavailable, "peer closed the connection",
                   {.layer = "endpoint",
                    .peer = peer->address(),
                    .operation = "receive",
                    .cause = "the peer disconnected: its process ended, or its channel closed",
                    .remedy = "reconnect when the peer is running again"}));
}

void EndpointImpl::SendCredits() {
  size_t kept = 0;
  for (Peer* peer : credit_reports_) {
    // A message that was sent meanwhile may have contained the report. A peer that disconnects needs no report.
    if (peer->state != peer::State::kUp ||
        (!peer->report_requested_by_peer &&
         (peer->receive.window() == 0 || !peer->receive.ReportIsDue()))) {
      peer->credit_report_queued = false;
    } else if (PostControl(peer, peer::Kind::kCredits, /*notify=*/false)) {
      peer->credit_report_queued = false;
      ++counters_.credit_messages;
    } else {
      credit_reports_[kept++] = peer;  // it may take no control slot: retried later
    }
  }
  credit_reports_.resize(kept);
}

}  // namespace sluice::endpoint
