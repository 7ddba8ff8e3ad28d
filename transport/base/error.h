// SPDX-License-Identifier: Apache-2.0
//
// Error(): builds an error status: what happened, to which object, the likely cause, the remedy. The status also carries these parts
// as a payload for programs (status_detail.h).
//
// Threads       Any: pure functions.
#ifndef SLUICE_TRANSPORT_BASE_ERROR_H_
#define SLUICE_TRANSPORT_BASE_ERROR_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "transport/base/status_detail.h"

namespace sluice::base {

inline constexpr char kErrorDetailUrl[] = "type.googleapis.com/sluice.ErrorDetail";

struct ErrorContext {
  std::string_view layer = {};      // room that detected the error: "cm", "queue", …
  std::string_view peer = {};       // "host:port", or empty
  std::string_view operation = {};  // "connect", "send", or a method's name
  std::string_view cause = {};      // likely cause
  std::string_view remedy = {};     // what the user can do
  uint32_t syndrome = 0;            // ibv_wc_status or errno, as the layer uses it
  uint32_t vendor_code = 0;         // ibv_wc.vendor_err, or a reject reason
  bool retry_safe = false;          // the operation provably did not run at the peer
};

// Returns a status with the message "what (peer P): cause; remedy". Empty parts are omitted.
absl::Status Error(absl::StatusCode code, std::string_view what, const ErrorContext& context);

// Returns the error of a call that failed with an errno value. The message has the name and the text of the value, which also selects
// the status code (ENOMEM → RESOURCE_EXHAUSTED, EOPNOTSUPP → UNIMPLEMENTED, EACCES → PERMISSION_DENIED, …).
absl::Status ErrnoError(int error_number, std::string_view what, ErrorContext context);

// Returns the error with `what` and ": " before its message. Code and payload stay. Returns an OK status unchanged.
absl::Status Prefix(const absl::Status& status, std::string_view what);

// Returns the error with `peer` added to its message and payload. Returns it unchanged if it names a peer or has no payload.
absl::Status AddPeer(const absl::Status& status, std::string_view peer);

// Returns the status with `retry_safe` set to false. Needed if a handler returns the error of a call that it made: that call did not run,
// but the handler did.
absl::Status NotRetrySafe(absl::Status status);

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_ERROR_H_
