// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/fork_count.h"

#include <pthread.h>

#include <cstdlib>

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

}  // namespace sluice::internal
