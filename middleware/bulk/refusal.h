// SPDX-License-Identifier: Apache-2.0
//
// Errors of a port that refuses a request, or whose transfer fails. Private to middleware/bulk.
#ifndef SLUICE_MIDDLEWARE_BULK_REFUSAL_H_
#define SLUICE_MIDDLEWARE_BULK_REFUSAL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transport/base/error.h"

namespace sluice::bulk {

inline absl::Status Refused(absl::StatusCode code, const std::string& what,
                            std::string_view cause = "", std::string_view remedy = "") {
  return base::Error(code, what,
                     {.layer = "bulk", .operation = "transfer", .cause = cause, .remedy = remedy});
}

// Returns now_ns + wait_ns, or INT64_MAX if the sum overflows.
inline int64_t Later(int64_t now_ns, int64_t wait_ns) {
  return wait_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + wait_ns;
}

inline absl::Status NoPeer() {
  return Refused(absl::StatusCode::kNotFound, "no such peer",
                 "the peer disconnected, or was disconnected to admit another peer",
                 "join the two ports again");
}

inline absl::Status NotJoined() {
  return Refused(absl::StatusCode::kUnavailable, "the other side has not joined",
                 "it did not get the answer, or has left", "join the two ports again");
}

inline absl::Status Broken(std::string_view cause) {
  return base::Error(absl::StatusCode::kUnavailable, "invalid notice from the peer",
                     {.layer = "bulk",
                      .operation = "arrival",
                      .cause = cause,
                      .remedy = "run the same release of Sluice on both sides"});
}

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_REFUSAL_H_
