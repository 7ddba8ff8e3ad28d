// SPDX-License-Identifier: Apache-2.0
//
// Sessions' part in large messages: lent at one side, fetched by the other (peer_large.h).
#include <algorithm>
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

// What has to keep its order among itself.
bool Together(const frame::Header& a, const frame::Header& b) {
  const auto of_flow = [](const frame::Header& header) {
    return header.kind >= frame::Kind::kFlowOpen && header.kind <= frame::Kind::kFlowClose;
  };
  if (of_flow(a) != of_flow(b)) return false;
  return of_flow(a) ? a.flow_id == b.flow_id : a.call_id == b.call_id;
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
  if (found == lent_.end()) return;  // it went with its peer
  if (buffer.slot != kNoSlot) endpoint_->Cancel(peer, found->second.place);
  lent_.erase(found);
  endpoint_->TakeBack(buffer.large);
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

// Its writer has thought better of it: there is nothing to read.
void Sessions::BringBack(Record& record, Unsent* unsent) {
  const uint32_t number = unsent->buffer.large;
  unsent->buffer = lent_.at(number).place;
  unsent->buffer.data += frame::kHeaderBytes;
  unsent->buffer.capacity_bytes -= frame::kHeaderBytes;
  ForgetLent(record, number);
  endpoint_->TakeBack(number);
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
      // Its place in the sequence is taken, so something has to stand there.
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
    if (next.header.flags & frame::kFlagLarge) large.sent.push_back({sequence, number, false});
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

// Nobody will read what is in it. Its place in the sequence stays.
void Sessions::Lose(endpoint::PeerId peer, uint32_t number, const absl::Status& why) {
  endpoint_->TakeBack(number);
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
  endpoint_->TakeBack(static_cast<uint32_t>(number));
  for (PeerLarge::Sent& sent : large.sent) {
    if (sent.number == number && !sent.taken) {
      sent.taken = true;
      break;
    }
  }
  while (!large.sent.empty() && large.sent.front().taken) large.sent.pop_front();
  ReportDelivered(peer, record);
  if (std::exchange(large.refused, false)) user_->OnWritable(peer);
}

// Delivered is what the user there has had: not yet what stands behind a large message that it has not read. Numbers are
// of the user's messages.
void Sessions::ReportDelivered(endpoint::PeerId peer, Record& record) {
  PeerLarge& large = *record.large;
  const auto before = [](uint32_t a, uint32_t b) { return static_cast<int32_t>(a - b) < 0; };
  uint32_t delivered = record.session.acknowledged();
  if (!large.sent.empty() && before(large.sent.front().sequence, delivered)) {
    delivered = large.sent.front().sequence;
  }
  while (!large.own.empty() && before(large.own.front(), delivered)) {
    large.own.pop_front();
    ++large.own_delivered;
  }
  user_->OnDelivered(peer, delivered - large.own_delivered);
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
  const auto before =
      std::find_if(large.incoming.begin(), large.incoming.end(), [&](const Incoming& incoming) {
        return !incoming.cancelled && Together(incoming.header, header);
      });
  if (before == large.incoming.end()) return false;
  if (header.kind == frame::Kind::kCancel && before->header.kind == frame::Kind::kRequest) {
    for (Incoming& incoming : large.incoming) {
      if (incoming.cancelled || !Together(incoming.header, header)) continue;
      incoming.cancelled = true;
      if (incoming.large && !incoming.ready) endpoint_->CancelFetch(incoming.fetch);
    }
    return true;
  }
  large.held_bytes += payload.size() + sizeof(Incoming);
  if (large.held_bytes > kMaxHeldBytes) {
    Break(peer, "too much behind a large message", "it sends more than this side keeps");
    return true;
  }
  large.incoming.push_back(
      {.header = header, .ready = true, .copy = {payload.begin(), payload.end()}});
  return true;
}

void Sessions::BeginFetch(endpoint::PeerId peer, Record& record, const frame::Header& header,
                          const frame::Place& place) {
  PeerLarge& large = *record.large;
  if (place.bytes > record.max_large_bytes) {
    return Break(peer, "malformed message", "a large message over the limit");
  }
  if (large.fetches == kMaxLent) {
    return Break(peer, "malformed message", "more large messages than may be under way");
  }
  const auto fetch =
      endpoint_->Fetch(peer, {.address = place.address, .bytes = place.bytes, .key = place.key});
  if (absl::IsInvalidArgument(fetch.status())) {
    return Break(peer, "malformed message", "a large message over the limit");
  }
  if (!fetch.ok()) return;  // the peer is on its way down
  ++large.fetches;
  large.incoming.push_back(
      {.header = header, .large = true, .fetch = *fetch, .number = place.number});
}

void Sessions::OnFetched(endpoint::PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                         uint32_t number) {
  Record* record = Find(peer);
  if (record == nullptr || record->large == nullptr) {
    if (buffer.ok()) endpoint_->GiveBack(number);
    return;
  }
  for (Incoming& incoming : record->large->incoming) {
    if (!incoming.large || incoming.ready || incoming.fetch != number) continue;
    incoming.ready = true;
    incoming.status = buffer.status();
    if (buffer.ok()) incoming.buffer = *buffer;
    break;
  }
  uint32_t& refusals = record->large->refusals;
  if (buffer.ok()) {
    refusals = 0;
  } else if (absl::IsPermissionDenied(buffer.status()) && ++refusals == kMaxRefusals) {
    return Break(peer, "no large message where it says",
                 "its device refused to let them be read, several in a row");
  }
  DeliverFetched(peer, *record);
  endpoint_->Flush();
}

// Whatever has nothing of its call or flow before it.
void Sessions::DeliverFetched(endpoint::PeerId peer, Record& record) {
  PeerLarge& large = *record.large;
  for (size_t i = 0; i < large.incoming.size();) {
    const auto at = large.incoming.begin() + static_cast<std::ptrdiff_t>(i);
    const bool behind = std::any_of(large.incoming.begin(), at, [&](const Incoming& incoming) {
      return Together(incoming.header, at->header);
    });
    if (!at->ready || behind) {
      ++i;
      continue;
    }
    Incoming next = std::move(*at);
    large.incoming.erase(at);
    i = 0;
    if (!next.large) {
      large.held_bytes -= next.copy.size() + sizeof(Incoming);
      if (!next.cancelled) user_->OnMessage(peer, next.header, next.copy);
      continue;
    }
    --large.fetches;
    bool told = false;
    if (next.status.ok()) {
      const std::span<const std::byte> payload(next.buffer.data, next.buffer.bytes);
      const frame::Fault fault = frame::Complete(&next.header, payload);
      bool held = false;
      ++counters_.large_received;
      if (next.cancelled) {
        // Nobody waits for it.
      } else if (fault != frame::Fault::kNone) {
        Break(peer, "malformed message", frame::Explain(fault));
      } else {
        // So that what its user sends in answer comes behind it, and finds the memory free there.
        const frame::Kind kind = next.header.kind;
        if (kind == frame::Kind::kRequest || kind == frame::Kind::kReply) {
          large.untold.push_back(next.number);
          told = true;
          SayTaken(peer, record);
        }
        delivering_ = next.fetch;
        user_->OnMessage(peer, next.header, payload);
        held = std::exchange(delivering_, kNoFetch) == kNoFetch;
      }
      if (!held) endpoint_->GiveBack(next.fetch);
    } else if (!next.cancelled) {
      ++counters_.large_lost;
      user_->OnLost(peer, next.header, next.status);
    }
    if (!told) large.untold.push_back(next.number);
  }
  SayTaken(peer, record);
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

// The peer is down: what was lent to it is out of its reach before anybody else has it; the endpoint ends fetches.
void Sessions::DropLarge(endpoint::PeerId peer, PeerLarge& large) {
  for (const Unsent& unsent : large.unsent) {
    if (unsent.buffer.large == kNotLarge) endpoint_->Release(unsent.buffer.slot);
  }
  for (auto it = lent_.begin(); it != lent_.end();) {
    const auto lent = it++;
    if (!(lent->second.peer == peer)) continue;
    const bool lost = lent->second.committed && !lent->second.status.ok();  // Lose() was said
    if (lent->second.place.data != nullptr && !lent->second.sent) {
      endpoint_->Release(lent->second.place.slot);
    }
    if (!lost) endpoint_->TakeBack(lent->first);
    --counters_.lent;
    lent_.erase(lent);
  }
  for (const Incoming& incoming : large.incoming) {
    if (incoming.large && incoming.ready && incoming.status.ok()) {
      endpoint_->GiveBack(incoming.fetch);
    }
  }
}

}  // namespace sluice::session
