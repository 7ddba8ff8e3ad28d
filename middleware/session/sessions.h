// SPDX-License-Identifier: Apache-2.0
//
// Sessions: messages between this side and its peers, in order, each exactly once.
//
// What it is    Between an endpoint, which may lose a message or carry it twice when a request fails, and whoever sends
//               calls or flows: stamps sequence numbers, keeps each message in its send slot until the peer has
//               acknowledged it, sends again what was not when the endpoint says so, and drops what came before. It
//               holds while both processes live and a path exists: with OnPeerDown() what was not acknowledged has
//               failed, and whether the peer took it is not known; a peer that comes back is another one.
//               docs/decisions/0016 and 0019 say why it is done so.
// Who owns it   The user, beside the endpoint, which takes this as its handler and outlives the last call to it.
// Which thread  The polling thread. The user is called inside the endpoint's Poll() only.
// Bound         What is not acknowledged lies in the endpoint's send buffers: Reserve() refuses when they, or the peer's
//               credits, are used up.
#ifndef SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_
#define SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/frame/frame.h"
#include "middleware/session/session.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::session {

class User {
 public:
  virtual ~User() = default;
  virtual void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) = 0;
  virtual void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) = 0;
  // In the order of sending, once. `payload` is valid during the call only.
  virtual void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                         std::span<const std::byte> payload) = 0;
  // Follows a Reserve() that answered RESOURCE_EXHAUSTED.
  virtual void OnWritable(endpoint::PeerId peer) = 0;
  // All messages before `sequence` have been given to the other side's user.
  virtual void OnDelivered(endpoint::PeerId /*peer*/, uint32_t /*sequence*/) {}
  // What the peer sends is not what a Sluice of this version sends: disconnect it.
  virtual void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                               std::string_view explanation) = 0;
};

struct SessionCounters {
  uint64_t duplicates = 0;       // messages that had come before: dropped
  uint64_t sent_again = 0;       // messages
  uint64_t protocol_errors = 0;  // what OnProtocolError() was told
};

class Sessions final : public endpoint::Handler {
 public:
  explicit Sessions(User* user) : user_(user) {}

  void Attach(endpoint::Endpoint* endpoint) { endpoint_ = endpoint; }

  // Room for a payload, at `data`. The endpoint's errors.
  absl::StatusOr<endpoint::SendBuffer> Reserve(endpoint::PeerId peer, uint32_t payload_bytes) {
    auto buffer = endpoint_->Reserve(peer, frame::kHeaderBytes + payload_bytes);
    if (buffer.ok()) {
      buffer->data += frame::kHeaderBytes;
      buffer->capacity_bytes -= frame::kHeaderBytes;
    }
    return buffer;
  }
  // Sends header.payload_bytes of the buffer behind the header, whose sequence number it sets and
  // returns. `report_soon`: OnDelivered() is wanted soon, not just some time.
  uint32_t Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, frame::Header& header,
                  bool report_soon = false);
  void Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) {
    endpoint_->Cancel(peer, buffer);
  }

  // Messages to it that are not acknowledged; 0 for a peer that is not up.
  uint32_t unacknowledged(endpoint::PeerId peer);
  const SessionCounters& counters() const { return counters_; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  bool OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) override;
  void OnAcknowledged(endpoint::PeerId peer, uint32_t total) override;
  bool OnResend(endpoint::PeerId peer) override;
  void OnWritable(endpoint::PeerId peer) override { user_->OnWritable(peer); }

 private:
  struct Record {
    uint32_t generation = 0;  // 0: nobody is here
    Session session;
  };

  Session* Find(endpoint::PeerId peer) {
    if (peer.index >= records_.size() || records_[peer.index].generation != peer.generation) {
      return nullptr;
    }
    return &records_[peer.index].session;
  }
  void Break(endpoint::PeerId peer, std::string_view what, std::string_view explanation);

  User* const user_;
  endpoint::Endpoint* endpoint_ = nullptr;
  std::vector<Record> records_;  // by PeerId::index; the endpoint bounds it
  Links links_;
  SessionCounters counters_;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_
