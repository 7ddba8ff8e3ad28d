// SPDX-License-Identifier: Apache-2.0
//
// CountForks(), Creator: distinguish a process from its forked children. An object stores the count at its creation. If the count
// differs later, this process is a child that inherited the object. The child has no threads of the object, and must not use its queues.
//
// Threads       Any. Costs a load. (getpid() is a system call.)
#ifndef SLUICE_MIDDLEWARE_API_FORK_COUNT_H_
#define SLUICE_MIDDLEWARE_API_FORK_COUNT_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace sluice::internal {

// Number of forks from the process that first called CountForks() to this process.
extern std::atomic<uint32_t> fork_count;

// Returns the count of this process. The first call starts the counting.
uint32_t CountForks();

// The process that created an object: a member of the object.
class Creator {
 public:
  // Returns whether this process was forked from it.
  bool InForkedChild() const { return fork_count.load(std::memory_order_relaxed) != forks_; }
  // Returns FAILED_PRECONDITION: `object` ("server") belongs to the parent of this process.
  static absl::Status Refuse(std::string_view object, std::string_view operation);

 private:
  const uint32_t forks_ = CountForks();
};

}  // namespace sluice::internal

#endif  // SLUICE_MIDDLEWARE_API_FORK_COUNT_H_
