// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: memory for replies that must be lent, and lost large messages.
#include <string>
#include <utility>

#include "middleware/call/server_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

absl::StatusOr<ServerEngine::Outgoing> ServerEngine::ReserveLarge(endpoint::PeerId id, Peer* peer,
                                                                  uint32_t payload_bytes,
                                                                  const session::InPlace& place) {
  Outgoing outgoing;
  auto lent = sessions_.Lend(id, payload_bytes, /*waits=*/false, place);
  if (!lent.ok()) {
    const std::string cause(lent.status().message());
    return base::Error(absl::StatusCode::kResourceExhausted, "reply not sent",
                       {.layer = "call",
                        .operation = "reply",
                        .cause = cause,
                        .remedy = "retry later, or raise large_memory_bytes at the server"});
  }
  outgoing.waits = !peer->backlog.empty() || !sessions_.Attach(id, &*lent).ok();
  outgoing.buffer = *lent;
  outgoing.data = lent->data;
  return outgoing;
}

namespace {

// Returns the error of a request that the peer withdrew, or whose peer disconnected, before it was read. The call did not run.
absl::Status NotRead(const absl::Status& why) {
  const auto detail = base::DetailOf(why);
  const std::string cause = detail.has_value() ? detail->cause() : std::string();
  return base::Error(why.code(), "large message not received",
                     {.layer = "call",
                      .operation = "receive a large request",
                      .cause = cause,
                      .remedy = "retry: the call did not run",
                      .retry_safe = true});
}

}  // namespace

absl::StatusOr<Buffer> ServerEngine::MakeBuffer(endpoint::PeerId id, size_t bytes) {
  Peer* peer = Find(id);
  if (peer == nullptr || closed_) return absl::CancelledError("the caller disconnected");
  return Buffer::Make(endpoint_, id, peer->address, bytes, peer->largest_bytes, peer->limit_bytes);
}

void ServerEngine::OnLost(endpoint::PeerId id, const frame::Header& header,
                          const absl::Status& why) {
  Peer* peer = Find(id);
  if (peer == nullptr) return;
  const absl::Status status = base::Prefix(why, "a large message can't be moved");
  if (header.kind == frame::Kind::kStreamData) {
    const auto call = peer->calls.find(header.call_id);
    if (call != peer->calls.end()) CancelCall(call->second, status);
    return;
  }
  if (header.kind == frame::Kind::kRequest) {
    return Refuse(id, peer, header.call_id, nullptr,
                  absl::IsUnavailable(why) ? NotRead(why) : status);
  }
  ReplyError(id, peer, header.call_id, nullptr, status, {});
}

}  // namespace sluice::call
