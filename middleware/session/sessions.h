// SPDX-License-Identifier: Apache-2.0
//
// Sessions: delivers messages between this side and its peers in order, each exactly once.
//
// Purpose       A layer between an endpoint, which may lose or duplicate messages when a request fails, and the senders of calls and
//               flows. It assigns sequence numbers, keeps each message in its send slot until the peer has acknowledged it, retransmits
//               unacknowledged messages when the endpoint reports a loss, and drops duplicates. The guarantee holds while both processes
//               live and a path exists. After OnPeerDown(), unacknowledged messages have failed, and the peer may or may not have
//               received them; a peer that returns is a new peer. docs/decisions/0016 and 0019 have the reasons.
// Ownership     The user, beside the endpoint, which takes this object as its handler and outlives the last call to it.
// Threads       The polling thread. Callbacks run only inside the endpoint's Poll(). Exception: Commit() may call OnLost().
// Large         A message above the maximum size of a message is written into memory that the endpoint lends to the peer. The peer reads
//               it from there. Both users see one message, at its place among those of its call or flow (peer_large.h).
// Limits        Unacknowledged messages occupy the endpoint's send buffers. Reserve() refuses when these or the peer's credits are used up.
#ifndef SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_
#define SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/frame/frame.h"
#include "middleware/session/peer_large.h"
#include "middleware/session/session.h"
#include "transport/endpoint/endpoint.h"

namespace sluice::session {

class User {
 public:
  virtual ~User() = default;
  virtual void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) = 0;
  virtual void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) = 0;
  // Called once for each message, in the order of sending. `payload` is valid during the call only.
  virtual void OnMessage(endpoint::PeerId peer, const frame::Header& header,
                         std::span<const std::byte> payload) = 0;
  // Follows a Reserve() that returned RESOURCE_EXHAUSTED.
  virtual void OnWritable(endpoint::PeerId peer) = 0;
  // Every place for a peer is taken. See endpoint::Handler.
  virtual void OnNoPlace(bool /*refused*/) {}
  // The user of the peer has received all messages before `sequence`.
  virtual void OnDelivered(endpoint::PeerId /*peer*/, uint32_t /*sequence*/) {}
  // The peer has sent an invalid message. The user must disconnect the peer.
  virtual void OnProtocolError(endpoint::PeerId peer, std::string_view what,
                               std::string_view explanation) = 0;
  // A large message with this header, sent or received by this side, is lost. UNAVAILABLE: the peer withdrew it, or disconnected while
  // this side read it. Another code: there was no memory for it. By default, calls OnProtocolError().
  virtual void OnLost(endpoint::PeerId peer, const frame::Header& header, const absl::Status& why);
};

// Memory that already contains part of a large payload: at its final position if the payload begins at `payload`.
struct InPlace {
  const endpoint::HeldMemory* memory = nullptr;  // nullptr: no such memory
  std::byte* payload = nullptr;
};

struct SessionCounters {
  uint64_t duplicates = 0;       // messages that were received before: dropped
  uint64_t sent_again = 0;       // retransmitted messages
  uint64_t protocol_errors = 0;  // calls of OnProtocolError()
  uint64_t large_sent = 0;
  uint64_t large_received = 0;
  uint64_t large_lost = 0;
  uint64_t large_in_place = 0;  // of large_sent: lent in the memory that the user wrote
  uint64_t large_held = 0;      // of large_received: the user kept the fetched memory
  uint32_t lent = 0;            // now: large messages that peers have not read yet
};

class Sessions final : public endpoint::Handler {
 public:
  explicit Sessions(User* user) : user_(user) {}

  void Attach(endpoint::Endpoint* endpoint) {
    endpoint_ = endpoint;
    never_released_ = endpoint->NeverReleased();
  }

  // Returns memory for a payload, at `data`.
  // Errors: RESOURCE_EXHAUSTED (no memory or credit now; OnWritable() follows), UNAVAILABLE (no such peer), INVALID_ARGUMENT (too large),
  // ABORTED (the system has no memory for it).
  // If `place` has memory that can be lent, a large payload is reserved there: `data` is then place.payload.
  [[gnu::always_inline]] absl::StatusOr<endpoint::SendBuffer> Reserve(endpoint::PeerId peer,
                                                                      uint32_t payload_bytes,
                                                                      const InPlace& place = {}) {
    auto buffer = endpoint_->Reserve(peer, frame::kHeaderBytes + payload_bytes);
    if (buffer.ok()) [[likely]] {
      buffer->data += frame::kHeaderBytes;
      buffer->capacity_bytes -= frame::kHeaderBytes;
    } else {
      ReserveOther(peer, payload_bytes, place, &buffer);
    }
    return buffer;
  }
  // As Endpoint::TryReserve(), for a payload that follows the header of the message: kHeaderBytes behind `data`. For CommitPlain().
  [[gnu::always_inline]] endpoint::Room TryReserve(endpoint::PeerId peer, uint32_t payload_bytes) {
    return endpoint_->TryReserve(peer, frame::kHeaderBytes + payload_bytes);
  }
  // Reserve a large message in two steps, for a caller that writes before it has a credit: Lend() returns the memory, Attach() reserves
  // the message that carries its Place. Call Commit() after Attach(), or Cancel() after either.
  // `waits`: after RESOURCE_EXHAUSTED, OnWritable() follows, as in Reserve(); see Endpoint::Lend().
  absl::StatusOr<endpoint::SendBuffer> Lend(endpoint::PeerId peer, uint32_t payload_bytes,
                                            bool waits, const InPlace& place = {});
  absl::Status Attach(endpoint::PeerId peer, endpoint::SendBuffer* lent);
  // Returns the memory of the message that User::OnMessage() delivers; the memory stays valid until its holder releases it. Call in
  // OnMessage() only. Returns an empty object if the message is not large, or too much memory is held: then copy the message.
  endpoint::HeldMemory Hold();
  // Return the maximum payload for a peer, and the maximum payload that is not lent.
  static uint32_t LargestPayload(const endpoint::PeerInfo& info);
  static uint32_t LargestEager(const endpoint::PeerInfo& info) {
    return info.max_message_bytes - frame::kHeaderBytes;
  }
  // Sends the header and the first header.payload_bytes of the buffer. Sets the sequence number in the header, and returns it. Returns 0 if
  // the message is large, waits behind a large message, or the peer is down. `report_soon`: the peer reports delivery at once.
  uint32_t Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, frame::Header& header,
                  bool report_soon = false);
  // As Commit(), for a message with a plain header, as nearly all messages of calls and flows. `Plain`: frame::PlainHeader or
  // frame::FlowDataHeader. Without large messages, it makes no intermediate copy of the header or the buffer's description.
  template <typename Plain = frame::PlainHeader>
  [[gnu::always_inline]] void CommitPlain(endpoint::PeerId peer, const endpoint::SendBuffer& buffer,
                                          const Plain& header, bool report_soon = false) {
    Record* const record = Find(peer);
    if (record == nullptr || record->large != nullptr) [[unlikely]]
      return CommitOther(peer, buffer, frame::HeaderOf(header), report_soon);
    std::byte* const message = buffer.data - frame::kHeaderBytes;
    frame::EncodePlain(header, record->session.Send(links_, buffer.slot), message);
    endpoint_->Commit(peer,
                      {.data = message,
                       .capacity_bytes = buffer.capacity_bytes + frame::kHeaderBytes,
                       .slot = buffer.slot},
                      frame::kHeaderBytes + header.payload_bytes, report_soon);
  }
  template <typename Plain = frame::PlainHeader>
  [[gnu::always_inline]] void CommitPlain(endpoint::PeerId peer, endpoint::Room room,
                                          const Plain& header, bool report_soon = false) {
    Record* const record = Find(peer);
    if (record == nullptr || record->large != nullptr) [[unlikely]] {
      return CommitOther(peer,
                         {.data = room.data + frame::kHeaderBytes,
                          .capacity_bytes = room.capacity_bytes - frame::kHeaderBytes,
                          .slot = room.slot},
                         frame::HeaderOf(header), report_soon);
    }
    frame::EncodePlain(header, record->session.Send(links_, room.slot), room.data);
    endpoint_->CommitRoom(peer, room, frame::kHeaderBytes + header.payload_bytes, report_soon);
  }
  void Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) {
    if (buffer.large != kNotLarge) return CancelLarge(peer, buffer);
    endpoint_->Cancel(peer, buffer);
  }

  // Returns the number of messages to the peer that are not acknowledged; 0 if the peer is not up.
  uint32_t unacknowledged(endpoint::PeerId peer);
  const SessionCounters& counters() const { return counters_; }
  // Returns the number of list entries examined for large messages: entries that wait behind them, or for their kTaken. For tests.
  uint64_t large_steps() const { return large_steps_; }

  void OnPeerUp(endpoint::PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(endpoint::PeerId peer, const absl::Status& why) override;
  void OnNoPlace(bool refused) override { user_->OnNoPlace(refused); }
  bool OnMessage(endpoint::PeerId peer, std::span<const std::byte> bytes) override;
  void OnAcknowledged(endpoint::PeerId peer, uint32_t total) override;
  bool OnResend(endpoint::PeerId peer) override;
  void OnWritable(endpoint::PeerId peer) override;
  void OnLent(endpoint::PeerId peer, uint32_t number, const absl::Status& status) override;
  void OnFetched(endpoint::PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                 uint32_t number) override;

 private:
  struct Record {
    uint32_t generation = 0;  // 0: no peer
    Session session;
    uint64_t max_large_bytes = 0;
    std::unique_ptr<PeerLarge> large;  // nullptr until the first large message in either direction
  };

  Record* Find(endpoint::PeerId peer) {
    if (peer.index >= record_count_) return nullptr;
    Record* const record = &records_[peer.index];
    return record->generation == peer.generation ? record : nullptr;
  }
  uint32_t Send(endpoint::PeerId peer, Record& record, endpoint::SendBuffer buffer,
                frame::Header& header, bool report_soon);
  void Drop(endpoint::PeerId peer);
  // Called if the endpoint refuses: reserves a large message if that is the reason.
  [[gnu::cold]] void ReserveOther(endpoint::PeerId peer, uint32_t payload_bytes,
                                  const InPlace& place,
                                  absl::StatusOr<endpoint::SendBuffer>* buffer);
  [[gnu::cold]] void CommitOther(endpoint::PeerId peer, const endpoint::SendBuffer& buffer,
                                 frame::Header header, bool report_soon);
  bool OnOtherMessage(endpoint::PeerId peer, Record* record, std::span<const std::byte> bytes);

  // large_messages.cc
  static PeerLarge& LargeOf(Record& record);
  absl::StatusOr<endpoint::SendBuffer> ReserveLarge(endpoint::PeerId peer, uint32_t payload_bytes,
                                                    const absl::Status& refusal,
                                                    const InPlace& place);
  void CancelLarge(endpoint::PeerId peer, endpoint::SendBuffer buffer);
  uint32_t CommitLarge(endpoint::PeerId peer, Record& record, const Unsent& unsent);
  void BringBack(Record& record, Unsent* unsent);
  void ForgetLent(Record& record, uint32_t number);
  void SendUnsent(endpoint::PeerId peer, Record& record);
  void Lose(endpoint::PeerId peer, uint32_t number, const absl::Status& why);
  // Returns true if the message is not for the user, or not yet.
  bool TakeLarge(endpoint::PeerId peer, Record& record, const frame::Header& header,
                 std::span<const std::byte> payload);
  void OnTaken(endpoint::PeerId peer, Record& record, uint64_t number);
  void BeginFetch(endpoint::PeerId peer, Record& record, const frame::Header& header,
                  const frame::Place& place);
  void DropLine(PeerLarge& large, LineKey key);
  void DeliverLine(endpoint::PeerId peer, LineKey key);
  void DeliverLarge(endpoint::PeerId peer, Record& record, frame::Header header,
                    const Fetch& fetch);
  void SayTaken(endpoint::PeerId peer, Record& record);
  void ReportDelivered(endpoint::PeerId peer, Record& record);
  void DropLarge(endpoint::PeerId peer, PeerLarge& large);

  void Break(endpoint::PeerId peer, std::string_view what, std::string_view explanation);

  User* const user_;
  endpoint::Endpoint* endpoint_ = nullptr;
  endpoint::Endpoint::SlotRange never_released_;
  std::vector<Record> records_;  // by PeerId::index; the endpoint bounds it
  uint32_t record_count_ = 0;    // records_.size(), whose computation takes a multiplication
  absl::flat_hash_map<uint32_t, Lent> lent_;  // by the endpoint's number
  uint32_t delivering_ = kNoFetch;            // fetch whose message OnMessage() delivers
  Links links_;
  SessionCounters counters_;
  uint64_t large_steps_ = 0;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_SESSIONS_H_
