// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/sessions.h"

namespace sluice::session {

void Sessions::OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) {
  if (peer.index >= records_.size()) records_.resize(peer.index + 1);
  records_[peer.index] = {peer.generation, Session()};
  user_->OnPeerUp(peer, info);
}

void Sessions::OnPeerDown(endpoint::PeerId peer, const absl::Status& why) {
  if (Session* session = Find(peer)) {
    session->outbox().ForEach(links_, [this](uint32_t slot) { endpoint_->Release(slot); });
    records_[peer.index] = {};
  }
  user_->OnPeerDown(peer, why);
}

uint32_t Sessions::Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, frame::Header& header,
                          bool report_soon) {
  Session* session = Find(peer);
  if (session == nullptr) {  // it went down since Reserve()
    Cancel(peer, buffer);
    return 0;
  }
  header.sequence = session->Send(links_, buffer.slot);
  buffer.data -= frame::kHeaderBytes;
  buffer.capacity_bytes += frame::kHeaderBytes;
  frame::Encode(header, buffer.data);
  endpoint_->Commit(peer, buffer, frame::kHeaderBytes + header.payload_bytes, report_soon);
  return header.sequence;
}

uint32_t Sessions::unacknowledged(endpoint::PeerId peer) {
  Session* session = Find(peer);
  return session == nullptr ? 0 : session->outbox().size();
}

bool Sessions::OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) {
  Session* session = Find(peer);
  if (session == nullptr) return true;
  frame::Header header;
  const frame::Fault fault = frame::Decode(bytes, &header);
  if (fault != frame::Fault::kNone) {
    Break(peer, "malformed message", frame::Explain(fault));
    return true;
  }
  switch (const Verdict verdict = session->Receive(header.sequence)) {
    case Verdict::kDeliver:
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
  Session* session = Find(peer);
  if (session == nullptr) return;
  const Verdict verdict =
      session->Acknowledge(links_, total, [this](uint32_t slot) { endpoint_->Release(slot); });
  if (verdict != Verdict::kDeliver) return Break(peer, "wrong credit", Explain(verdict));
  user_->OnDelivered(peer, total);
}

bool Sessions::OnResend(endpoint::PeerId peer) {
  if (Session* session = Find(peer)) {
    counters_.sent_again += session->outbox().size();
    session->outbox().ForEach(links_, [&](uint32_t slot) { endpoint_->Repost(peer, slot); });
  }
  return true;
}

void Sessions::Break(endpoint::PeerId peer, std::string_view what, std::string_view explanation) {
  ++counters_.protocol_errors;
  user_->OnProtocolError(peer, what, explanation);
}

}  // namespace sluice::session
