// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/sessions.h"

namespace sluice::session {

void User::OnLost(endpoint::PeerId peer, const frame::Header&, const absl::Status& why) {
  OnProtocolError(peer, "large message lost", {why.message().data(), why.message().size()});
}

void Sessions::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  if (peer.index >= records_.size()) {
    records_.resize(peer.index + 1);
    record_count_ = peer.index + 1;
  }
  Record& record = records_[peer.index];
  if (record.generation != 0) Drop({peer.index, record.generation});
  record = {.generation = peer.generation, .max_large_bytes = info.max_large_bytes};
  user_->OnPeerUp(peer, info);
}

void Sessions::Drop(endpoint::PeerId peer) {
  Record* record = Find(peer);
  if (record == nullptr) return;
  record->session.outbox().ForEach(links_, [this](uint32_t slot) { endpoint_->Release(slot); });
  if (record->large != nullptr) DropLarge(peer, *record->large);
  *record = {};
}

void Sessions::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  Drop(peer);
  user_->OnPeerDown(peer, why);
}

uint32_t Sessions::Send(endpoint::PeerId peer, Record& record, endpoint::SendBuffer buffer,
                        frame::Header& header, bool report_soon) {
  header.sequence = record.session.Send(links_, buffer.slot);
  buffer.data -= frame::kHeaderBytes;
  buffer.capacity_bytes += frame::kHeaderBytes;
  frame::Encode(header, buffer.data);
  endpoint_->Commit(peer, buffer, frame::kHeaderBytes + header.payload_bytes, report_soon);
  return header.sequence;
}

// flatten: a call of Send() would copy the buffer's description once more.
[[gnu::flatten]] uint32_t Sessions::Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer,
                                           frame::Header& header, bool report_soon) {
  Record* record = Find(peer);
  if (record == nullptr) {  // it went down since Reserve()
    Cancel(peer, buffer);
    return 0;
  }
  if (record->large != nullptr && (buffer.large != kNotLarge || !record->large->unsent.empty())) {
    return CommitLarge(peer, *record, {buffer, header, report_soon});
  }
  return Send(peer, *record, buffer, header, report_soon);
}

void Sessions::ReserveOther(endpoint::PeerId peer, uint32_t payload_bytes, const InPlace& place,
                            absl::StatusOr<endpoint::SendBuffer>* buffer) {
  *buffer = ReserveLarge(peer, payload_bytes, buffer->status(), place);
}

void Sessions::CommitOther(endpoint::PeerId peer, const endpoint::SendBuffer& buffer,
                           frame::Header header, bool report_soon) {
  Commit(peer, buffer, header, report_soon);
}

uint32_t Sessions::unacknowledged(endpoint::PeerId peer) {
  Record* record = Find(peer);
  return record == nullptr ? 0 : record->session.outbox().size();
}

bool Sessions::OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) {
  Record* const record = Find(peer);
  if (record == nullptr) [[unlikely]]
    return true;
  if (record->large != nullptr || bytes.size() < frame::kHeaderBytes) [[unlikely]]
    return OnOtherMessage(peer, record, bytes);
  frame::Header header;
  if (!frame::internal::DecodePlain(bytes, &header) ||
      !record->session.ReceiveNext(header.sequence)) [[unlikely]] {
    return OnOtherMessage(peer, record, bytes);
  }
  user_->OnMessage(peer, header, bytes.subspan(frame::kHeaderBytes));
  return true;
}

// Handles the messages that are not on the fast path of OnMessage().
bool Sessions::OnOtherMessage(endpoint::PeerId peer, Record* record,
                              std::span<const std::byte> bytes) {
  frame::Header header;
  const frame::Fault fault = frame::Decode(bytes, &header);
  if (fault != frame::Fault::kNone) {
    Break(peer, "malformed message", frame::Explain(fault));
    return true;
  }
  switch (const Verdict verdict = record->session.Receive(header.sequence)) {
    case Verdict::kDeliver:
      if ((record->large != nullptr || frame::IsAboutLarge(header)) &&
          TakeLarge(peer, *record, header, bytes.subspan(frame::kHeaderBytes))) {
        return true;
      }
      user_->OnMessage(peer, header, bytes.subspan(frame::kHeaderBytes));
      return true;
    case Verdict::kDuplicate:
      ++counters_.duplicates;
      return false;
    default:
      Break(peer, "message out of order", Explain(verdict));
      return true;
  }
}

void Sessions::OnAcknowledged(endpoint::PeerId peer, uint32_t total) {
  Record* record = Find(peer);
  if (record == nullptr) return;
  const Verdict verdict = record->session.Acknowledge(links_, total, [this](uint32_t slot) {
    if (slot - never_released_.first >= never_released_.count) endpoint_->Release(slot);
  });
  if (verdict != Verdict::kDeliver) return Break(peer, "wrong credit", Explain(verdict));
  if (record->large != nullptr) return ReportDelivered(peer, *record);
  user_->OnDelivered(peer, total);
}

bool Sessions::OnResend(endpoint::PeerId peer) {
  if (Record* record = Find(peer)) {
    Outbox& outbox = record->session.outbox();
    counters_.sent_again += outbox.size();
    outbox.ForEach(links_, [&](uint32_t slot) { endpoint_->Repost(peer, slot); });
  }
  return true;
}

void Sessions::Break(endpoint::PeerId peer, std::string_view what, std::string_view explanation) {
  ++counters_.protocol_errors;
  user_->OnProtocolError(peer, what, explanation);
}

}  // namespace sluice::session
