// SPDX-License-Identifier: Apache-2.0
//
// Session: order and duplicates of one flow with one peer.
//
// What it is    Sequence numbers for what goes out, and a judgement on what comes in. The transport may send a
//               message twice (a work request that failed may have been executed), never out of order and never
//               not at all while the peer is up; a gap therefore means that the connection is broken.
// Who owns it   Whoever talks to the peer: one Session per OnPeerUp, dropped at OnPeerDown.
// Which thread  The polling thread.
//
// Sequence numbers are 32 bits wide and wrap; comparisons are modulo 2^32 (as RFC 1982), which is unambiguous
// because far fewer than 2^31 messages are ever under way.
#ifndef SLUICE_MIDDLEWARE_SESSION_SESSION_H_
#define SLUICE_MIDDLEWARE_SESSION_SESSION_H_

#include <cstdint>
#include <string_view>

namespace sluice::session {

enum class Verdict : uint8_t {
  kDeliver,    // the next one
  kDuplicate,  // seen before: drop it, count it
  kGap,        // one before it is missing: close the connection
  kBogusAck,   // acknowledges what was never sent: close the connection
};

std::string_view Explain(Verdict verdict);

class Session {
 public:
  Session() = default;
  // For tests of the wrap-around.
  explicit Session(uint32_t first_sequence)
      : next_to_send_(first_sequence),
        acknowledged_(first_sequence),
        next_expected_(first_sequence) {}

  // The sequence number of the message that is sent next. Call once per message, in the order of
  // sending.
  uint32_t TakeSequence() { return next_to_send_++; }

  // What to write as acknowledgement into an outgoing message.
  uint32_t acknowledgement() const { return next_expected_; }

  Verdict Receive(uint32_t sequence, uint32_t acknowledgement) {
    const auto ahead = static_cast<int32_t>(sequence - next_expected_);
    if (ahead < 0) {
      ++duplicates_;
      return Verdict::kDuplicate;
    }
    if (ahead > 0) return Verdict::kGap;
    if (next_to_send_ - acknowledgement > next_to_send_ - acknowledged_) return Verdict::kBogusAck;
    ++next_expected_;
    acknowledged_ = acknowledgement;
    return Verdict::kDeliver;
  }

  // Messages sent that the other side has not acknowledged yet.
  uint32_t unacknowledged() const { return next_to_send_ - acknowledged_; }
  uint64_t duplicates() const { return duplicates_; }

 private:
  uint32_t next_to_send_ = 0;
  uint32_t acknowledged_ = 0;  // all before it have arrived at the other side
  uint32_t next_expected_ = 0;
  uint64_t duplicates_ = 0;
};

}  // namespace sluice::session

#endif  // SLUICE_MIDDLEWARE_SESSION_SESSION_H_
