// SPDX-License-Identifier: Apache-2.0
//
// Notice: the message of the side that moves data about one piece of a transfer, or about all pieces that will not come. OK and error
// of a piece are the same notice with another outcome, so one replaces the other.
//
// Threads       Any: values and pure functions.
#ifndef SLUICE_MIDDLEWARE_BULK_NOTICE_H_
#define SLUICE_MIDDLEWARE_BULK_NOTICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/integrity/mismatch.h"
#include "transport/integrity/protection.h"
#include "transport/integrity/signed_queue.h"

namespace sluice::bulk {

enum class Outcome : uint8_t {
  kGood,
  kMismatch,
  kCancelled,  // this piece and those behind it were not moved
};

struct Notice {
  uint64_t number =
      0;  // of the transfer, from 0, +1 each, between these two ports in this direction
  uint32_t piece = 0;
  uint32_t pieces = 1;
  integrity::Transfer::Kind kind = integrity::Transfer::Kind::kWrite;
  Outcome outcome = Outcome::kGood;
  uint32_t lease = 0;
  uint32_t epoch = 0;
  uint32_t first_block = 0;  // of this piece, in the transfer
  uint64_t offset = 0;       // in the lease, of this piece
  uint64_t data_bytes = 0;   // of a plain transfer that was stopped: what of it had been moved
  uint64_t tag = 0;          // the user's
  integrity::Protection protection;  // of this piece, as the initiator sees it
  integrity::Mismatch mismatch;      // of this piece, kMismatch only

  bool operator==(const Notice&) const = default;
};

inline constexpr size_t kNoticeBytes = 96;
static_assert(kNoticeBytes <= integrity::kMaxReplyBytes);
inline constexpr uint32_t kMaxPieces = 1u << 20;

void Store(const Notice& notice, std::byte* to);
// Nothing: these bytes are none.
std::optional<Notice> LoadNotice(std::span<const std::byte> bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_NOTICE_H_
