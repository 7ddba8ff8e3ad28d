// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/fork_count.h"

#include <pthread.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::internal {

std::atomic<uint32_t> fork_count{0};

uint32_t CountForks() {
  static const bool counting = [] {
    const auto count = [] { fork_count.fetch_add(1, std::memory_order_relaxed); };
    if (pthread_atfork(nullptr, nullptr, count) != 0) abort();  // out of memory
    return true;
  }();
  (void)counting;
  return fork_count.load(std::memory_order_relaxed);
}

absl::Status Creator::Refuse(std::string_view object, std::string_view operation) {
  return base::Error(absl::StatusCode::kFailedPrecondition,
                     absl::StrCat("the ", std::string(object), " belongs to another process"),
                     {.layer = "api",
                      .operation = operation,
                      .cause = absl::StrCat("this process was forked after the ",
                                            std::string(object), " was created"),
                      .remedy = "create another one in the child",
                      .retry_safe = true});
}

}  // namespace sluice::internal
