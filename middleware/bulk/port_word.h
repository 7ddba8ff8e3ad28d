// SPDX-License-Identifier: Apache-2.0
//
// PortWord: a message between two ports that is no data: the result of a transfer, and the place, readiness and end of the queue pair
// for protected transfers (signed_way.cc).
//
// Threads       Any: values and pure functions.
// Errors        LoadPortWord() checks bytes from a peer.
#ifndef SLUICE_MIDDLEWARE_BULK_PORT_WORD_H_
#define SLUICE_MIDDLEWARE_BULK_PORT_WORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "middleware/bulk/notice.h"
#include "transport/onesided/word.h"

namespace sluice::bulk {

struct PortWord {
  enum class Kind : uint8_t {
    kNotice = 1,  // of a transfer that had no queue pair of its own
    kQueue,       // here is mine
    kReady,       // and yours may send to it
    kClose,       // do you need it still?
    kClosed,      // closed: no further notices arrive by it
  };

  Kind kind = Kind::kNotice;
  Notice notice;           // kNotice
  uint32_t qp_number = 0;  // kQueue
  uint32_t notices = 0;    // kQueue: that it takes before it has looked at one
  uint8_t reads = 0;       // kQueue: that its device answers at a time

  bool operator==(const PortWord&) const = default;
};

inline constexpr size_t kPortWordHeadBytes = 16;
static_assert(kPortWordHeadBytes + kNoticeBytes <= onesided::kMaxWordBytes);

std::vector<std::byte> ToBytes(const PortWord& word);
// Nothing: these bytes are none.
std::optional<PortWord> LoadPortWord(std::span<const std::byte> bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PORT_WORD_H_
