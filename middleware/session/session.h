// SPDX-License-Identifier: Apache-2.0
//
// Session: order and duplicates of the messages between this side and one peer.
//
// What it is    Sequence numbers for what goes out, a judgement on what comes in, and the messages that the peer has
//               not acknowledged, by send slot. The transport may carry a message twice, since a request that failed
//               may have been executed and is sent again; it never skips one: a gap means that a side is broken.
// Who owns it   Sessions, one for each peer that is up.
// Which thread  The polling thread.
//
// Sequence numbers are 32 bits wide and wrap; comparisons are modulo 2^32 (as RFC 1982), which is unambiguous
// because far fewer than 2^31 messages are ever under way.
#ifndef SLUICE_MIDDLEWARE_SESSION_SESSION_H_
#define SLUICE_MIDDLEWARE_SESSION_SESSION_H_

#include <cstdint>
#include <string_view>

#include "middleware/session/outbox.h"

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
      : next_to_send_(first_sequence), next_expected_(first_sequence) {}

  // The sequence number of the message in `slot`, which is sent next, and kept.
  uint32_t Send(Links& links, uint32_t slot) {
    outbox_.PushBack(links, slot);
    return next_to_send_++;
  }

  // A message came in.
  Verdict Receive(uint32_t sequence) {
    const auto ahead = static_cast<int32_t>(sequence - next_expected_);
    if (ahead < 0) return Verdict::kDuplicate;
    if (ahead > 0) return Verdict::kGap;
    ++next_expected_;
    return Verdict::kDeliver;
  }

  // The messages before `sequence` have been taken: release(slot) for each of which that is news.
  template <typename ReleaseSlot>
  Verdict Acknowledge(const Links& links, uint32_t sequence, ReleaseSlot release) {
    const uint32_t taken = sequence - acknowledged();
    if (taken > outbox_.size()) return Verdict::kBogusAck;
    for (uint32_t i = 0; i < taken; ++i) release(outbox_.PopFront(links));
    return Verdict::kDeliver;
  }

  // All messages before it have been taken by the peer.
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
