// SPDX-License-Identifier: Apache-2.0
//
// Session: order of the messages between this side and one peer, and detection of duplicates.
//
// Purpose       Assigns sequence numbers to sent messages, checks received ones, and keeps the unacknowledged messages by send slot. The
//               transport may deliver a message twice, because a failed request may have been executed and is retransmitted. It never
//               skips a message: a gap means that one side is defective.
// Ownership     Sessions, one for each connected peer.
// Threads       The polling thread.
// Limits        Sequence numbers have 32 bits and wrap. Comparisons are modulo 2^32 (as in RFC 1982). This is unambiguous, because far
//               fewer than 2^31 messages are in flight.
#ifndef SLUICE_MIDDLEWARE_SESSION_SESSION_H_
#define SLUICE_MIDDLEWARE_SESSION_SESSION_H_

#include <cstdint>
#include <string_view>

#include "middleware/session/outbox.h"

namespace sluice::session {

enum class Verdict : uint8_t {
  kDeliver,    // the next message
  kDuplicate,  // seen before: drop it, count it
  kGap,        // a message before it is missing: close the connection
  kBogusAck,   // acknowledges a message that was never sent: close the connection
};

std::string_view Explain(Verdict verdict);

class Session {
 public:
  Session() = default;
  // For tests of the wrap-around.
  explicit Session(uint32_t first_sequence)
      : next_to_send_(first_sequence), next_expected_(first_sequence) {}

  // Adds the message in `slot`, which is sent next, to the outbox. Returns its sequence number.
  uint32_t Send(Links& links, uint32_t slot) {
    outbox_.PushBack(links, slot);
    return next_to_send_++;
  }

  // Checks the sequence number of a received message.
  Verdict Receive(uint32_t sequence) {
    const auto ahead = static_cast<int32_t>(sequence - next_expected_);
    if (ahead < 0) return Verdict::kDuplicate;
    if (ahead > 0) return Verdict::kGap;
    ++next_expected_;
    return Verdict::kDeliver;
  }

  // Fast path of Receive(): returns true if the message is the next. Otherwise returns false without effect; then call Receive().
  bool ReceiveNext(uint32_t sequence) {
    if (sequence != next_expected_) return false;
    ++next_expected_;
    return true;
  }

  // Handles the acknowledgement of all messages before `sequence`. Calls release(slot) for each newly acknowledged message.
  template <typename ReleaseSlot>
  Verdict Acknowledge(const Links& links, uint32_t sequence, ReleaseSlot release) {
    const uint32_t taken = sequence - acknowledged();
    if (taken > outbox_.size()) return Verdict::kBogusAck;
    outbox_.PopFront(links, taken, release);
    return Verdict::kDeliver;
  }

  // Returns the sequence number of the first message that the peer has not acknowledged.
  uint32_t acknowledged() const { return next_to_send_ - outbox_.size(); }
  uint32_t next_to_send() const { return next_to_send_; }
  uint32_t next_expected() const { return next_expected_; }
  Outbox& outbox() { return outbox_; }

 private:
  uint32_t next_to_send_ = 0;
  uint32_t next_expected_ = 0;
  Outbox outbox_;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_SESSION_H_
