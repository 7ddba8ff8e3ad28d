// SPDX-License-Identifier: Apache-2.0
//
// Sessions: large messages. The sender lends them, the receiver fetches them (peer_large.h).
#include <algorithm>
#include <string>
#include <utility>

#include "middleware/session/sessions.h"
#include "transport/base/error.h"

namespace sluice::session {
namespace {

absl::Status NotNow(const char* cause) {
  return base::Error(absl::StatusCode::kResourceExhausted, "large message not sent",
                     {.layer = "session",
                      .operation = "send",
                      .cause = cause,
                      .remedy = "wait for OnWritable",
                      .retry_safe = true});
}

// Returns the error for users if the peer's device refused a READ. The device does not report whether the peer revoked the memory or
// never lent it. A peer that never lends the memory that it announces is disconnected (kMaxRefusals).
absl::Status Withdrawn(const absl::Status& refusal) {
  const auto detail = base::DetailOf(refusal);
  const std::string peer = detail.has_value() ? detail->peer() : std::string();
  return base::Error(
      absl::StatusCode::kUnavailable, "large message not received",
      {.layer = "session",
       .peer = peer,
       .operation = "receive",
       .cause = "the peer withdrew the message, or disconnected while this side read it",
       .remedy = "the call may have run; retry it only if running it twice is harmless"});
}

LineKey LineOf(const frame::Header& header) {
  const bool of_flow =
      header.kind >= frame::Kind::kFlowOpen && header.kind <= frame::Kind::kFlowClose;
  return {.of_flow = of_flow, .id = of_flow ? header.flow_id : header.call_id};
}

}  // namespace

uint32_t Sessions::LargestPayload(const endpoint::PeerInfo& info) {
  return static_cast<uint32_t>(std::max<uint64_t>(LargestEager(info), info.max_large_bytes));
}

PeerLarge& Sessions::LargeOf(Record& record) {
  if (record.large == nullptr) record.large = std::make_unique<PeerLarge>();
  return *record.large;
}

// ---- Out

absl::StatusOr<endpoint::SendBuffer> Sessions::ReserveLarge(endpoint::PeerId peer,
                                                            uint32_t payload_bytes,
                                                            const absl::Status& refusal,
                                                            const InPlace& place) {
  const Record* record = Find(peer);
  if (!absl::IsInvalidArgument(refusal) || record == nullptr ||
      payload_bytes > record->max_large_bytes) {
    return refusal;
  }
  auto lent = Lend(peer, payload_bytes, /*waits=*/true, place);
  if (!lent.ok()) return lent;
  const absl::Status attached = Attach(peer, &*lent);
  if (attached.ok()) return lent;
  CancelLarge(peer, *lent);
  return attached;
}

absl::StatusOr<endpoint::SendBuffer> Sessions::Lend(endpoint::PeerId peer, uint32_t payload_bytes,
                                                    bool waits, const InPlace& place) {
  Record* record = Find(peer);
  if (record == nullptr) return absl::UnavailableError("peer is not connected");
  PeerLarge& large = LargeOf(*record);
  if (large.lent == kMaxLent) {
    large.refused = large.refused || waits;
    return NotNow("the peer has not read those before");
  }
  endpoint::LargeBuffer memory;
  Lent lent = {.peer = peer};
  if (place.memory != nullptr && endpoint_->LendHeld(peer, *place.memory)) {
    memory = {.data = place.payload, .number = place.memory->number()};
    lent.offset = static_cast<uint64_t>(place.payload - place.memory->data());
    lent.in_place = true;
  } else {
    auto made = endpoint_->Lend(peer, payload_bytes, waits);
    if (!made.ok()) return made.status();
    memory = *made;
  }
  lent_[memory.number] = lent;
  ++large.lent;
  ++counters_.lent;
  return endpoint::SendBuffer{.data = memory.data,
                              .capacity_bytes = payload_bytes,
                              .slot = kNoSlot,
                              .large = memory.number};
}

absl::Status Sessions::Attach(endpoint::PeerId peer, endpoint::SendBuffer* lent) {
  const auto place = endpoint_->Reserve(peer, frame::kHeaderBytes + frame::kPlaceBytes);
  if (!place.ok()) return place.status();
  lent_.at(lent->large).place = *place;
  lent->slot = place->slot;
  return absl::OkStatus();
}

void Sessions::CancelLarge(endpoint::PeerId peer, endpoint::SendBuffer buffer) {
  const auto found = lent_.find(buffer.large);
  // The loan ended when its peer went down; another loan may have the number now.
  if (found == lent_.end() || !(found->second.peer == peer)) return;
  if (buffer.slot != kNoSlot) endpoint_->Cancel(peer, found->second.place);
  lent_.erase(found);
  endpoint_->EndLoan(buffer.large);
  --counters_.lent;
  if (Record* record = Find(peer)) --LargeOf(*record).lent;
}

uint32_t Sessions::CommitLarge(endpoint::PeerId peer, Record& record, const Unsent& unsent) {
  record.large->unsent.push_back(unsent);
  if (unsent.buffer.large != kNotLarge) {
    Lent& lent = lent_.at(unsent.buffer.large);
    lent.header = unsent.header;
    lent.committed = true;
    if (unsent.header.payload_bytes == 0) {
      BringBack(record, &record.large->unsent.back());
    } else if (!lent.status.ok()) {
      Lose(peer, unsent.buffer.large, lent.status);
    }
  }
  SendUnsent(peer, record);
  return 0;
}

// Converts a large message that was committed without a payload to an ordinary message, and ends the loan.
void Sessions::BringBack(Record& record, Unsent* unsent) {
  const uint32_t number = unsent->buffer.large;
  unsent->buffer = lent_.at(number).place;
  unsent->buffer.data += frame::kHeaderBytes;
  unsent->buffer.capacity_bytes -= frame::kHeaderBytes;
  ForgetLent(record, number);
  endpoint_->EndLoan(number);
}

void Sessions::ForgetLent(Record& record, uint32_t number) {
  lent_.erase(number);
  --record.large->lent;
  --counters_.lent;
}

void Sessions::SendUnsent(endpoint::PeerId peer, Record& record) {
  PeerLarge& large = *record.large;
  while (!large.unsent.empty()) {
    Unsent next = large.unsent.front();
    const uint32_t number = next.buffer.large;
    if (number != kNotLarge) {
      Lent& lent = lent_.at(number);
      const endpoint::SendBuffer& place = lent.place;
      next.buffer = place;
      next.buffer.data += frame::kHeaderBytes;
      next.buffer.capacity_bytes -= frame::kHeaderBytes;
      // The message has a place in the sequence, so a message without effect replaces it.
      if (!lent.status.ok()) {
        next.header = {};
        next.header.kind = frame::Kind::kTaken;
        next.header.call_id = frame::kNothingTaken;
        ForgetLent(record, number);
      } else {
        const auto where = endpoint_->WhereLent(number);
        if (!where.has_value()) return;  // OnLent() follows
        frame::Encode(frame::Place{.address = where->address + lent.offset,
                                   .bytes = next.header.payload_bytes,
                                   .key = where->key,
                                   .number = number},
                      next.buffer.data);
        next.header.flags |= frame::kFlagLarge;
        next.header.payload_bytes = frame::kPlaceBytes;
        lent.sent = true;
        ++counters_.large_sent;
        if (lent.in_place) ++counters_.large_in_place;
      }
    }
    large.unsent.pop_front();
    const bool own =
        next.header.kind == frame::Kind::kTaken && next.header.call_id != frame::kNothingTaken;
    const uint32_t sequence = Send(peer, record, next.buffer, next.header, next.report_soon);
    if (own) large.own.push_back(sequence);
    if (next.header.flags & frame::kFlagLarge) {
      const auto own_before = large.own_acknowledged + static_cast<uint32_t>(large.own.size());
      large.sent.push_back({sequence, number, own_before});
    }
  }
}

void Sessions::OnLent(endpoint::PeerId peer, uint32_t number, const absl::Status& status) {
  const auto found = lent_.find(number);
  Record* record = Find(peer);
  if (found == lent_.end() || record == nullptr) return;
  found->second.status = status;
  if (!found->second.committed) return;
  if (!status.ok()) Lose(peer, number, status);
  SendUnsent(peer, *record);
  endpoint_->Flush();
}

// Ends the loan of a message that can't be sent. The message keeps its place in the sequence.
void Sessions::Lose(endpoint::PeerId peer, uint32_t number, const absl::Status& why) {
  endpoint_->EndLoan(number);
  ++counters_.large_lost;
  const frame::Header header = lent_.at(number).header;
  user_->OnLost(peer, header, why);
}

void Sessions::OnTaken(endpoint::PeerId peer, Record& record, uint64_t number) {
  if (number == frame::kNothingTaken) return;
  const auto found = lent_.find(static_cast<uint32_t>(number));
  if (found == lent_.end() || !(found->second.peer == peer) || !found->second.sent) {
    return Break(peer, "malformed message", "it has taken what was not lent to it");
  }
  PeerLarge& large = *record.large;
  ForgetLent(record, static_cast<uint32_t>(number));
  endpoint_->EndLoan(static_cast<uint32_t>(number));
  const auto sent =
      std::find_if(large.sent.begin(), large.sent.end(), [&](const PeerLarge::Sent& one) {
        ++large_steps_;
        return one.number == number;
      });
  if (sent != large.sent.end()) large.sent.erase(sent);
  const bool writable = std::exchange(large.refused, false);
  ReportDelivered(peer, record);
  if (writable) user_->OnWritable(peer);
}

// Reports the number of messages that the user of the peer has received. Messages behind a large message that the peer has not read do not
// count yet. The number counts the user's messages only.
void Sessions::ReportDelivered(endpoint::PeerId peer, Record& record) {
  PeerLarge& large = *record.large;
  const auto before = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; };
  const uint32_t acknowledged = record.session.acknowledged();
  while (!large.own.empty() && before(large.own.front(), acknowledged)) {
    large.own.pop_front();
    ++large.own_acknowledged;
  }
  uint32_t delivered = acknowledged - large.own_acknowledged;
  if (!large.sent.empty() && before(large.sent.front().sequence, acknowledged)) {
    delivered = large.sent.front().sequence - large.sent.front().own_before;
  }
  user_->OnDelivered(peer, delivered);
}

// ---- In

bool Sessions::TakeLarge(endpoint::PeerId peer, Record& record, const frame::Header& header,
                         std::span<const std::byte> payload) {
  PeerLarge& large = LargeOf(record);
  if (header.kind == frame::Kind::kTaken) {
    OnTaken(peer, record, header.call_id);
    return true;
  }
  if (header.flags & frame::kFlagLarge) {
    BeginFetch(peer, record, header, frame::PlaceIn(payload));
    return true;
  }
  if (large.lines.empty()) return false;
  ++large_steps_;
  const LineKey key = LineOf(header);
  const auto line = large.lines.find(key);
  if (line == large.lines.end()) return false;
  if (header.kind == frame::Kind::kCancel &&
      line->second.front().header.kind == frame::Kind::kRequest) {
    DropLine(large, key);
    SayTaken(peer, record);
    return true;
  }
  large.held_bytes += payload.size() + sizeof(Incoming);
  if (large.held_bytes > kMaxHeldBytes) {
    Break(peer, "too much behind a large message", "it sends more than this side keeps");
    return true;
  }
  line->second.push_back({.header = header, .copy = {payload.begin(), payload.end()}});
  return true;
}

// Drops a line whose messages no user has seen.
void Sessions::DropLine(PeerLarge& large, LineKey key) {
  const auto node = large.lines.extract(key);
  for (const Incoming& incoming : node.mapped()) {
    ++large_steps_;
    if (incoming.large == nullptr) {
      large.held_bytes -= incoming.copy.size() + sizeof(Incoming);
      continue;
    }
    Fetch& fetch = *incoming.large;
    if (!fetch.ended) {
      fetch.cancelled = true;
      endpoint_->CancelFetch(fetch.fetch);
      continue;
    }
    if (fetch.status.ok()) endpoint_->GiveBack(fetch.fetch);
    --large.fetches;
    large.untold.push_back(fetch.number);
  }
}

void Sessions::BeginFetch(endpoint::PeerId peer, Record& record, const frame::Header& header,
                          const frame::Place& place) {
  PeerLarge& large = *record.large;
  if (place.bytes > record.max_large_bytes) {
    return Break(peer, "malformed message", "a large message over the limit");
  }
  // Messages whose kTaken is not sent yet count too: until then, the peer may not replace them with others.
  if (large.fetches + large.untold.size() >= kMaxLent) {
    return Break(peer, "malformed message", "more large messages than may be in flight");
  }
  const auto number =
      endpoint_->Fetch(peer, {.address = place.address, .bytes = place.bytes, .key = place.key});
  if (absl::IsInvalidArgument(number.status())) {
    return Break(peer, "malformed message", "a large message over the limit");
  }
  if (!number.ok()) return;  // the peer is on its way down
  ++large.fetches;
  auto fetch = std::make_shared<Fetch>();
  fetch->line = LineOf(header);
  fetch->fetch = *number;
  fetch->number = place.number;
  large.under_way[*number] = fetch;
  large.lines[fetch->line].push_back({.header = header, .large = std::move(fetch)});
}

void Sessions::OnFetched(endpoint::PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                         uint32_t number) {
  Record* record = Find(peer);
  if (record == nullptr || record->large == nullptr || !record->large->under_way.contains(number)) {
    if (buffer.ok()) endpoint_->GiveBack(number);
    return;
  }
  PeerLarge& large = *record->large;
  const auto node = large.under_way.extract(number);
  Fetch& fetch = *node.mapped();
  fetch.ended = true;
  fetch.status = buffer.status();
  if (buffer.ok()) fetch.buffer = *buffer;
  if (buffer.ok()) {
    large.refusals = 0;
  } else if (absl::IsPermissionDenied(buffer.status())) {
    fetch.status = Withdrawn(buffer.status());
    if (++large.refusals == kMaxRefusals) {
      return Break(peer, "no large message where it says",
                   "its device refused to let them be read, several in a row");
    }
  }
  if (fetch.cancelled) {
    if (buffer.ok()) endpoint_->GiveBack(number);
    --large.fetches;
    large.untold.push_back(fetch.number);
    SayTaken(peer, *record);
  } else {
    DeliverLine(peer, fetch.line);
  }
  endpoint_->Flush();
}

// Delivers the messages at the front of the line that are complete. Removes each message from the line before it calls the user. Then looks
// up the peer and the line again, because the user may have ended them.
void Sessions::DeliverLine(endpoint::PeerId peer, LineKey key) {
  for (Record* record = Find(peer); record != nullptr; record = Find(peer)) {
    PeerLarge& large = *record->large;
    const auto line = large.lines.find(key);
    if (line == large.lines.end()) return SayTaken(peer, *record);
    ++large_steps_;
    if (line->second.front().large != nullptr && !line->second.front().large->ended) {
      return SayTaken(peer, *record);
    }
    const Incoming next = std::move(line->second.front());
    line->second.pop_front();
    if (line->second.empty()) large.lines.erase(line);
    if (next.large != nullptr) {
      --large.fetches;
      DeliverLarge(peer, *record, next.header, *next.large);
      continue;
    }
    large.held_bytes -= next.copy.size() + sizeof(Incoming);
    user_->OnMessage(peer, next.header, next.copy);
  }
}

void Sessions::DeliverLarge(endpoint::PeerId peer, Record& record, frame::Header header,
                            const Fetch& fetch) {
  // kTaken is sent before the user is called, so that the peer receives it before the user's answer, and has the memory free by then.
  const bool early = header.kind == frame::Kind::kRequest || header.kind == frame::Kind::kReply;
  frame::Fault fault = frame::Fault::kNone;
  std::span<const std::byte> payload;
  if (fetch.status.ok()) {
    payload = {fetch.buffer.data, fetch.buffer.bytes};
    fault = frame::Complete(&header, payload);
    ++counters_.large_received;
  } else {
    ++counters_.large_lost;
  }
  record.large->untold.push_back(fetch.number);
  if (early && fetch.status.ok() && fault == frame::Fault::kNone) SayTaken(peer, record);
  if (!fetch.status.ok()) return user_->OnLost(peer, header, fetch.status);
  if (fault != frame::Fault::kNone) {
    Break(peer, "malformed message", frame::Explain(fault));
    return endpoint_->GiveBack(fetch.fetch);
  }
  delivering_ = fetch.fetch;
  user_->OnMessage(peer, header, payload);
  const bool held = std::exchange(delivering_, kNoFetch) == kNoFetch;
  if (!held) endpoint_->GiveBack(fetch.fetch);
}

endpoint::HeldMemory Sessions::Hold() {
  if (delivering_ == kNoFetch) return {};
  endpoint::HeldMemory memory = endpoint_->HoldFetched(delivering_);
  if (!memory) return memory;
  delivering_ = kNoFetch;
  ++counters_.large_held;
  return memory;
}

void Sessions::SayTaken(endpoint::PeerId peer, Record& record) {
  PeerLarge& large = *record.large;
  while (!large.untold.empty()) {
    const auto buffer = Reserve(peer, 0);
    if (!buffer.ok()) return;  // OnWritable() or OnPeerDown() follows
    frame::Header header;
    header.kind = frame::Kind::kTaken;
    header.call_id = large.untold.front();
    large.untold.pop_front();
    large.unsent.push_back({*buffer, header, false});
    SendUnsent(peer, record);
  }
}

void Sessions::OnWritable(endpoint::PeerId peer) {
  Record* record = Find(peer);
  if (record != nullptr && record->large != nullptr) SayTaken(peer, *record);
  user_->OnWritable(peer);
}

// Ends all loans of a peer that is down. The endpoint ends its fetches, and reuses lent memory only when the peer can't read it.
void Sessions::DropLarge(endpoint::PeerId peer, PeerLarge& large) {
  for (const Unsent& unsent : large.unsent) {
    if (unsent.buffer.large == kNotLarge) endpoint_->Cancel(peer, unsent.buffer);
  }
  for (auto it = lent_.begin(); large.lent > 0 && it != lent_.end();) {
    const auto lent = it++;
    if (!(lent->second.peer == peer)) continue;
    --large.lent;
    const bool lost = lent->second.committed && !lent->second.status.ok();  // Lose() was called
    if (lent->second.place.data != nullptr && !lent->second.sent) {
      endpoint_->Cancel(peer, lent->second.place);
    }
    if (!lost) endpoint_->EndLoan(lent->first);
    --counters_.lent;
    lent_.erase(lent);
  }
  for (const auto& [key, line] : large.lines) {
    for (const Incoming& incoming : line) {
      const Fetch* fetch = incoming.large.get();
      if (fetch != nullptr && fetch->ended && fetch->status.ok()) endpoint_->GiveBack(fetch->fetch);
    }
  }
}

}  // namespace sluice::session
