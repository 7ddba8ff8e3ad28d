// SPDX-License-Identifier: Apache-2.0
//
// An absl::Status as the payload of an error reply: text, and the ErrorDetail that base::Error()
// attached. The grammar is in frame.h.
//
// Thread-safety: pure functions.
#ifndef SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_
#define SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace sluice::frame {

inline constexpr uint32_t kMaxStatusTextBytes =
    1024;  // longer texts are cut, at the end, with "..."
inline constexpr uint32_t kMaxStatusDetailBytes = 2048;  // longer details are left out

// At most `limit_bytes` long: the detail goes first, then the end of the text. `status` is not OK.
std::string EncodeStatus(const absl::Status& status, uint32_t limit_bytes);

// `code` is a checked header's, not 0. Bytes that break the grammar give a status of the same code
// that says so; a detail that is not an ErrorDetail is dropped.
absl::Status DecodeStatus(uint16_t code, std::span<const std::byte> payload);

}  // namespace sluice::frame

#endif  // SLUICE_MIDDLEWARE_FRAME_STATUS_PAYLOAD_H_
