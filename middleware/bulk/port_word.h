// SPDX-License-Identifier: Apache-2.0
//
// PortWord: a message between two ports that carries no user data: the result of a transfer, or the address, readiness or end of the
// queue pair for protected transfers (signed_way.cc).
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
    kNotice = 1,  // notice of a transfer that used no queue pair
    kQueue,       // address of the sender's queue pair
    kReady,       // the sender's queue pair is connected: the receiver may send to it
    kClose,       // the sender asks the receiver to close the queue pair
    kClosed,      // closed: no further notices arrive by it
  };

  Kind kind = Kind::kNotice;
  Notice notice;           // kNotice
  uint32_t qp_number = 0;  // kQueue
  uint32_t notices = 0;    // kQueue: maximum number of notices in flight to the sender
  uint8_t reads = 0;       // kQueue: maximum number of RDMA READs that its device answers at a time

  bool operator==(const PortWord&) const = default;
};

inline constexpr size_t kPortWordHeadBytes = 16;
static_assert(kPortWordHeadBytes + kNoticeBytes <= onesided::kMaxWordBytes);

std::vector<std::byte> ToBytes(const PortWord& word);
// Returns nullopt if the bytes are not a valid word.
std::optional<PortWord> LoadPortWord(std::span<const std::byte> bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PORT_WORD_H_
