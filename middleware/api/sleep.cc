// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/sleep.h"

#include "transport/base/error.h"

namespace sluice::internal {

absl::Status NoHomeToSleepAt() {
  return base::Error(absl::StatusCode::kFailedPrecondition, "SleepFor() refused",
                     {.layer = "api",
                      .operation = "sleep",
                      .cause = "the coroutine has no home, so there is no timer to use",
                      .remedy = "sleep in a handler, or give Spawn() a home"});
}

absl::Status SleepStopped() {
  return base::Error(absl::StatusCode::kCancelled, "SleepFor() cancelled",
                     {.layer = "api", .operation = "sleep", .cause = "a stop was requested"});
}

}  // namespace sluice::internal
