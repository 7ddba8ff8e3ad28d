// SPDX-License-Identifier: Apache-2.0
//
// Notice: a message of the side that moves the data, about one piece of a transfer or about all pieces that it will not move. OK and
// error of a piece are the same notice with another outcome, so one replaces the other.
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
  // Protected transfer: this piece and all later pieces were not moved. Plain transfer: it was stopped after Notice::data_bytes.
  kCancelled,
};

struct Notice {
  // Number of the transfer: counted from 0 for each connection of two ports and each direction.
  uint64_t number = 0;
  uint32_t piece = 0;
  uint32_t pieces = 1;
  integrity::Transfer::Kind kind = integrity::Transfer::Kind::kWrite;
  Outcome outcome = Outcome::kGood;
  uint32_t lease = 0;
  uint32_t epoch = 0;
  uint32_t first_block = 0;  // index of this piece's first block in the transfer
  uint64_t offset = 0;       // offset of this piece in the lease
  // Data bytes of this piece. Plain transfer: data bytes that were moved in total.
  uint64_t data_bytes = 0;
  uint64_t tag = 0;                  // TransferRequest::tag
  integrity::Protection protection;  // of this piece, as the initiator sees it
  integrity::Mismatch mismatch;      // of this piece, kMismatch only

  bool operator==(const Notice&) const = default;
};

inline constexpr size_t kNoticeBytes = 96;
static_assert(kNoticeBytes <= integrity::kMaxReplyBytes);
inline constexpr uint32_t kMaxPieces = 1u << 20;

void Store(const Notice& notice, std::byte* to);
// Returns nullopt if the bytes are not a valid notice.
std::optional<Notice> LoadNotice(std::span<const std::byte> bytes);

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_NOTICE_H_
