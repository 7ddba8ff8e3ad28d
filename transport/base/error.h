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
  std::string_view layer = {};      // the room that saw it first: "cm", "queue", …
  std::string_view peer = {};       // "host:port", or empty
  std::string_view operation = {};  // "connect", "send", or a method's name
  std::string_view cause = {};      // why, most likely
  std::string_view remedy = {};     // what to do about it
  uint32_t syndrome = 0;            // ibv_wc_status or errno, as the layer uses it
  uint32_t vendor_code = 0;         // ibv_wc.vendor_err, or a reject reason
  bool retry_safe = false;          // provably did not run at the peer
};

// Message: "what (peer P): cause; remedy", parts that are empty left out.
absl::Status Error(absl::StatusCode code, std::string_view what, const ErrorContext& context);

// For a call that failed with an errno value: says its name and text, and picks the status code
// (ENOMEM → RESOURCE_EXHAUSTED, EOPNOTSUPP → UNIMPLEMENTED, EACCES → PERMISSION_DENIED, …).
absl::Status ErrnoError(int error_number, std::string_view what, ErrorContext context);

// The same error seen by an outer layer: the message grows in front, code and payload stay.
absl::Status Prefix(const absl::Status& status, std::string_view what);

// The same error, of an operation with `peer`, if it names no peer so far: in message and payload.
absl::Status AddPeer(const absl::Status& status, std::string_view peer);

// Takes the claim that the operation did not run from a status that carries it: what was true of a call that a handler made is not
// true of the handler's own call.
absl::Status NotRetrySafe(absl::Status status);

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_ERROR_H_
