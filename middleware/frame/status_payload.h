// SPDX-License-Identifier: Apache-2.0
//
// An absl::Status as the payload of an error reply: its text and its payloads, both of base::Error() and of users. frame.h has the grammar.
//
// Threads       Any: pure functions.
// Limits        The size of one message (EndpointLimits::max_message_bytes), and kMaxStatusPayloads. A status that exceeds a limit is
//               shortened; the end of its text lists the omitted parts.
#ifndef SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_
#define SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace sluice::frame {

inline constexpr uint32_t kMaxStatusPayloads = 64;
inline constexpr uint32_t kMinStatusBytes = sizeof(uint32_t);  // of an empty text

// Encodes `status`, which is not OK, in at most `limit_bytes`, which is at least kMinStatusBytes. If the status does not fit, half
// of the space is reserved for the text. Sluice's own payload comes next, then the payloads of users that fit as a whole, in the order of
// their type URLs. The text also gets the space that remains.
std::string EncodeStatus(const absl::Status& status, uint32_t limit_bytes);

// Decodes such a payload. `code`: status code of a checked header, not 0. If the text is malformed, the returned status has the same code,
// and its text reports that. Payloads before the first malformed payload are kept.
absl::Status DecodeStatus(uint16_t code, std::span<const std::byte> payload);

}  // namespace sluice::frame

#endif  // SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_
