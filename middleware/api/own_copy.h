// SPDX-License-Identifier: Apache-2.0
//
// OwnCopy(): returns a copy of a status that shares no memory with the original, for another
// thread. Other copies of an absl::Status share a reference-counted block. The counting is correct,
// but ThreadSanitizer does not see it, because it happens inside the distribution's Abseil. An OK
// status has no block.
#ifndef SLUICE_MIDDLEWARE_API_OWN_COPY_H_
#define SLUICE_MIDDLEWARE_API_OWN_COPY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace sluice {

inline absl::Status OwnCopy(const absl::Status& status) {
  if (status.ok()) return absl::OkStatus();
  absl::Status copy(status.code(), std::string(status.message()));
  status.ForEachPayload([&copy](absl::string_view url, const absl::Cord& payload) {
    copy.SetPayload(url, absl::Cord(std::string(payload)));
  });
  return copy;
}

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_OWN_COPY_H_
