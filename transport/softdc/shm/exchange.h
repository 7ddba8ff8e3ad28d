// SPDX-License-Identifier: Apache-2.0
//
// Replaces the pages behind an address range while the program runs: same contents, same addresses, other
// memory. One mremap installs the new mapping in one step. No write must happen between the copy and that
// step:
//
//   other threads of the program   the range is write-protected through userfaultfd, so they wait in the fault;
//                                  not needed if there are no other threads
//   our firmware thread            runs the exchange itself
//   the caller                     waits for the exchange, with signals blocked
//   other processes                the caller of ExchangePages must keep them from writing
//   the device of a driver         cannot be stopped (O_DIRECT, io_uring buffers)
//
// docs/decisions/0007-private-memory-moved-in-place.md lists the alternatives that were tried.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_

#include <cstdint>

namespace sluice::softdc::shm {

// Source of the new pages.
struct NewPages {
  int fd = -1;  // -1: private anonymous memory
  uint64_t file_offset = 0;
};

enum class WriterPolicy {
  // Every write waits, also a write that the kernel does for a thread. Needs a privilege.
  kAllOrNothing,
  // If kAllOrNothing is not permitted, only writes from user code wait. If the kernel writes to the range for
  // a thread at that moment, for example in read(2), that thread gets EFAULT. Use it for memory that nothing
  // should write to.
  kUserWritesOnly,
};

// Replaces the pages. Returns 0, or an errno after which nothing has changed. EPERM: the program has other
// threads and is not allowed to stop their writes. The range must consist of whole pages, mapped readable and
// writable. Blocks. Not from the firmware thread.
int ExchangePages(uint64_t begin, uint64_t end, const NewPages& pages, WriterPolicy policy);

// Does the same in a process that was just forked: one thread, no firmware thread, no malloc.
int ExchangePagesAfterFork(uint64_t begin, uint64_t end, const NewPages& pages);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_
