// SPDX-License-Identifier: Apache-2.0
//
// CountForks(): tells a process from those that were forked from it. An object keeps the count of its creation; another count later
// means that it was inherited by a child, which has neither its threads nor a right to its queues.
//
// Threads       Any. Costs a load. (getpid() is a system call.)
#ifndef SLUICE_MIDDLEWARE_API_FORK_COUNT_H_
#define SLUICE_MIDDLEWARE_API_FORK_COUNT_H_

#include <atomic>
#include <cstdint>

namespace sluice::internal {

extern std::atomic<uint32_t>
    fork_count;  // forks since the first CountForks(), in the line of this process

// From now on forks are counted. The count of this process.
uint32_t CountForks();

}  // namespace sluice::internal

#endif  // SLUICE_MIDDLEWARE_API_FORK_COUNT_H_
