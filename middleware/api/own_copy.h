// SPDX-License-Identifier: Apache-2.0
//
// OwnCopy(): a status that shares nothing with the one it is a copy of, to be handed to another
// thread. Copies of an absl::Status share a counted block; the counting is right, but it happens
// inside the distribution's Abseil, where ThreadSanitizer does not see it. Errors only: OK has no
// block.
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
