// SPDX-License-Identifier: Apache-2.0
//
// Common part of capabilities and tickets: bytes that a user passes on. Private to middleware/bulk.
#ifndef SLUICE_MIDDLEWARE_BULK_PASSED_ON_H_
#define SLUICE_MIDDLEWARE_BULK_PASSED_ON_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "middleware/bulk/fields.h"
#include "transport/base/error.h"

namespace sluice::bulk {

inline absl::Status NotPassedOn(std::string_view what, std::string_view cause) {
  return base::Error(absl::StatusCode::kInvalidArgument, what,
                     {.layer = "bulk",
                      .operation = "load",
                      .cause = cause,
                      .remedy = "pass on the bytes of the peer unchanged, and run on both sides "
                                "the same release of Sluice"});
}

// Checks length, kind and version. Format of the head: kind(1) version(1), and two bytes whose meaning depends on the kind.
inline absl::Status CheckHead(std::string_view bytes, size_t size, uint8_t kind, uint8_t version,
                              std::string_view what) {
  if (bytes.size() != size) return NotPassedOn(what, "it has another length");
  if (Get<uint8_t>(bytes.data(), 0) != kind) return NotPassedOn(what, "it is something else");
  if (Get<uint8_t>(bytes.data(), 1) != version)
    return NotPassedOn(what, "it is of another version");
  return absl::OkStatus();
}

}  // namespace sluice::bulk

#endif  // SLUICE_MIDDLEWARE_BULK_PASSED_ON_H_
