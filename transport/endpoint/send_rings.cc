// SPDX-License-Identifier: Apache-2.0
//
// Messages that are written into lanes from send rings. Cells are reserved and committed like send buffers. One WRITE sends all
// messages in adjacent cells (docs/decisions/0063).
#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

using lane::Mode;

void EndpointImpl::MakeRings(std::byte* memory) {
  const uint32_t count = SendRings(options_);
  rings_.resize(count + 1);
  for (uint32_t i = count; i > 0; --i) {
    rings_[i].memory = memory + (i - 1) * SendRingBytes(options_);
    rings_[i].first_slot = slots_->first_cell() + (i - 1) * SendRingCells(options_);
    rings_[i].index = i;
    free_rings_.push_back(i);
  }
}

SendRing& EndpointImpl::RingOf(uint32_t slot) {
  return rings_[1 + (slot - slots_->first_cell()) / SendRingCells(options_)];
}

bool EndpointImpl::MayReserveCell(const Peer& peer, SendRing* ring, uint32_t message_bytes) {
  return !ring->reserved &&
         lane::EncodedBytes(lane::Layout::kWhole, message_bytes) <= ring->cell_bytes &&
         // Counts this message too. The limit is the same for messages from send buffers.
         peer.send.under_way(peer.remote_window) + 2 < ring->slots &&
         (ring->used != ring->cells || RetireCells(ring) || LeaveRing(ring));
}

// Opens a ring for a lane, if a ring is free. A peer whose last ring is not free yet gets no other ring: without this rule it could
// hold all rings if it does not acknowledge.
void EndpointImpl::OpenRing(Peer* peer, OutLane* out) {
  const lane::Grant& grant = out->writer.grant();
  if (free_rings_.empty() || grant.layout != lane::Layout::kWhole ||
      grant.slots > options_.lane_slots || grant.slot_bytes > options_.lane_slot_bytes) {
    return;
  }
  for (const uint32_t index : closed_rings_) {
    if (rings_[index].id == peer->id()) return;
  }
  SendRing& ring = rings_[free_rings_.back()];
  free_rings_.pop_back();
  slots_->BeginCells(ring.first_slot, SendRingCells(options_));
  if (!(ring.id == peer->id())) {
    // A WRITE of several messages includes the bytes between them, which must not be data of another peer.
    std::memset(ring.memory, 0, SendRingBytes(options_));
  }
  ring = {.memory = ring.memory,
          .first_slot = ring.first_slot,
          .index = ring.index,
          .peer = peer,
          .out = out,
          .id = peer->id(),
          .slots = grant.slots,
          .cells = grant.slots * (2 * grant.slots <= SendRingCells(options_) ? 2 : 1),
          .cell_bytes = grant.slot_bytes,
          .stop = 1,
          .reserved = false,
          .listed = ring.listed,
          .next_listed = ring.next_listed};
  ring.most_bytes = std::min<uint32_t>(
      peer->max_message_bytes, ring.cell_bytes - lane::kStampBytes - uint32_t{peer::kPrefixBytes});
  ring.SetLimit(peer->send, peer->remote_window);
  out->ring = &ring;
  peer->ring = ring.index & 31;
}

void EndpointImpl::CloseRing(OutLane* out, bool write_rest) {
  SendRing* ring = out->ring;
  if (ring == nullptr) return;
  if (write_rest) WriteCells(ring);
  ring->batch = 0;
  ring->last_credit = ring->peer->send.used();
  CountUnacknowledged(ring->peer);
  ring->peer->ring = 0;
  ring->peer = nullptr;
  ring->out = nullptr;
  out->ring = nullptr;
  closed_rings_.push_back(ring->index);
}

void EndpointImpl::ReclaimRings() {
  size_t kept = 0;
  for (const uint32_t index : closed_rings_) {
    const SendRing& ring = rings_[index];
    const Peer& peer = peers_[ring.id.index];
    // The owner of the messages must learn first that the peer is down.
    const bool needed =
        peer.generation == ring.id.generation &&
        (peer.down_due ||
         (peer.state == peer::State::kUp &&
          static_cast<int32_t>(peer.send.acknowledged(peer.remote_window) - ring.last_credit) < 0));
    bool free = !ring.reserved && !needed;
    for (uint32_t cell = 0; free && cell < ring.cells; ++cell) {
      free = !slots_->IsUnderWay(ring.first_slot + cell);
    }
    if (free) {
      free_rings_.push_back(index);
    } else {
      closed_rings_[kept++] = index;
    }
  }
  closed_rings_.resize(kept);
}

// Frees the cells of complete requests, the oldest first. Returns false if no cell became free.
bool EndpointImpl::RetireCells(SendRing* ring) {
  const uint32_t before = ring->used;
  while (ring->used != ring->batch && !slots_->IsUnderWay(ring->first_slot + ring->oldest)) {
    const uint32_t messages = (*slots_)[ring->first_slot + ring->oldest].messages;
    ring->used -= messages;
    ring->oldest += messages;  // no request goes beyond the last cell
    if (ring->oldest == ring->cells) ring->oldest = 0;
  }
  return ring->used != before;
}

// Called if no cell is free, although the lane has room: the device delays completions behind other requests. Closes the ring. The
// lane continues without a ring. Always returns false.
bool EndpointImpl::LeaveRing(SendRing* ring) {
  CloseRing(ring->out, /*write_rest=*/true);
  return false;
}

// `peer`: null if it is no longer up. Clears the cell, so that its content is not sent to any peer.
void EndpointImpl::CancelCell(Peer* peer, uint32_t index) {
  SendRing& ring = RingOf(index);
  ring.reserved = false;
  const queue::Slot& slot = (*slots_)[index];
  std::memset(slot.data, 0, slot.length_bytes);
  if (peer != nullptr && ring.peer == nullptr &&
      static_cast<int32_t>(ring.last_credit - peer->send.used()) > 0) {
    ring.last_credit = peer->send.used();
  }
}

// Moves a message that is shorter than reserved to the end of its cell.
void EndpointImpl::ShortenCell(queue::Slot* slot, uint32_t message_bytes) {
  std::byte* place = slot->data + lane::EncodedBytes(lane::Layout::kWhole, slot->length_bytes) -
                     lane::EncodedBytes(lane::Layout::kWhole, message_bytes);
  std::memmove(place, slot->data, message_bytes);
  std::memset(slot->data, 0, static_cast<size_t>(place - slot->data));
  slot->data = place;
  slot->length_bytes = message_bytes;
}

// `peer`: null if it is no longer up.
void EndpointImpl::CommitCell(Peer* peer, uint32_t index, uint32_t length_bytes, bool report_soon) {
  SendRing* ring = peer == nullptr ? nullptr : RingTo(*peer);
  const bool open = ring != nullptr && ring->reserved && ring->slot() == index;
  if (!open) ring = &RingOf(index);
  ring->reserved = false;
  if (peer == nullptr) return;  // OnPeerDown() reports it
  queue::Slot& slot = (*slots_)[index];
  const auto message_bytes = static_cast<uint32_t>(length_bytes + peer::kPrefixBytes);
  if (message_bytes != slot.length_bytes) ShortenCell(&slot, message_bytes);
  if (!open) return SendCell(peer, index, report_soon);
  ring->reserved_message = slot.data;
  ring->reserved_bytes = message_bytes;
  JoinBatch(peer, ring, report_soon);
}

void EndpointImpl::JoinBatch(Peer* peer, SendRing* ring, bool report_soon) {
  if (static_cast<int32_t>(ring->limit - peer->send.used()) < 0) {
    // Other messages were sent since the cell was reserved, so the lane slot may not be free. The next cell belongs to the next slot.
    const uint32_t index = ring->slot();
    ring->reserved = false;
    CloseRing(ring->out, /*write_rest=*/true);
    return SendCell(peer, index, report_soon);
  }
  if (ring->batch == 0) report_soon |= BeginBatch(peer, ring);
  report_soon = (report_soon || peer->send.available() == 0) && MustAsk(peer);
  ring->batch_asks |= report_soon;
  AddToBatch(peer, ring, ring->reserved_message, ring->reserved_bytes, report_soon);
  if (ring->next == ring->stop) EndBatch(ring);
}

// Begins a batch, and sets the cell at which it ends at the latest. Returns whether the queue needs a report.
bool EndpointImpl::BeginBatch(const Peer* peer, SendRing* ring) {
  const uint32_t lap_end = ring->next < ring->slots ? ring->slots : ring->cells;
  const bool announced = ring->out->mode == Mode::kAnnounced;  // an announcement names one message
  ring->stop = std::min(ring->next + (announced ? 1 : SendRing::kMaxBatch), lap_end);
  if (!ring->listed) {
    ring->listed = true;
    ring->next_listed = unwritten_rings_;
    unwritten_rings_ = ring;
  }
  return queue_->scarce(peer->target);
}

// Writes a batch that is full, or at the end of a lap.
void EndpointImpl::EndBatch(SendRing* ring) {
  const bool full = ring->batch == SendRing::kMaxBatch;
  if (ring->next == ring->cells) ring->next = 0;
  WriteCells(ring);
  if (full) queue_->Flush();
}

// Sends a message that was built in a cell, but whose ring is closed.
void EndpointImpl::SendCell(Peer* peer, uint32_t index, bool report_soon) {
  queue::Slot& slot = (*slots_)[index];
  RingOf(index).last_credit = peer->send.used();
  CountUnacknowledged(peer);
  slot.operation = queue::Operation::kSend;
  slot.messages = 1;
  report_soon = report_soon || peer->send.available() == 0 || queue_->scarce(peer->target);
  slot.signal = report_soon && MustAsk(peer);
  WritePrefix(peer, index, peer::Kind::kData, slot.signal, peer->committed++);
  ++counters_.messages_sent;
  queue_->Post(&peer->target, index);
}

// Posts one WRITE for the batch. Cells become free when WRITEs complete, so some WRITEs are signalled in each lap.
void EndpointImpl::WriteCells(SendRing* ring) {
  if (ring->batch == 0) return;
  const uint32_t end = ring->next != 0 ? ring->next : ring->cells;
  const uint32_t index = ring->first_slot + end - ring->batch;
  lane::Writer& writer = ring->out->writer;
  writer.Advance(ring->batch);
  queue::Slot& slot = (*slots_)[index];
  assert(!slots_->IsUnderWay(index));
  const auto begin_bytes = static_cast<uint32_t>(slot.data - ring->memory);
  const uint32_t lap_bytes = end > ring->slots ? ring->slots * ring->cell_bytes : 0;
  slot.operation = ring->out->mode == Mode::kSilent ? queue::Operation::kWrite
                                                    : queue::Operation::kWriteAnnounced;
  slot.write = {.address = writer.grant().address + begin_bytes - lap_bytes,
                .rkey = writer.grant().rkey,
                .immediate = writer.last_immediate(),
                .offset_bytes = 0,
                .length_bytes = end * ring->cell_bytes - begin_bytes};
  slot.messages = static_cast<uint16_t>(ring->batch);
  ring->unsignalled += ring->batch;
  slot.signal = ring->batch_asks || ring->unsignalled >= ring->cells / 4;
  if (slot.signal) ring->unsignalled = 0;
  ring->batch = 0;
  ring->stop = ring->next + 1;
  ring->batch_asks = false;
  CountUnacknowledged(ring->peer);
  queue_->Post(&ring->peer->target, index);
}

// No message is committed while this runs.
void EndpointImpl::WriteAllCells() {
  for (SendRing* ring = std::exchange(unwritten_rings_, nullptr); ring != nullptr;
       ring = ring->next_listed) {
    ring->listed = false;
    WriteCells(ring);
  }
}

}  // namespace sluice::endpoint
