// SPDX-License-Identifier: Apache-2.0
//
// Exchanging the pages behind a range of addresses while the program runs: the same contents, at the
// same place, in other memory. One mremap puts the new mapping there in one step; what has to be kept
// out is a write between the copy and that step:
//
//   other threads of the program   write-protected through userfaultfd, they wait in the fault; not
//                                  needed when there are none
//   our firmware thread            runs the exchange itself
//   the caller                     waits for it, with signals blocked
//   other processes                the caller of this answers for them
//   the device of a driver         (O_DIRECT, io_uring buffers) cannot be kept out
//
// docs/decisions/0007-private-memory-moved-in-place.md says what else was tried.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_

#include <cstdint>

namespace sluice::softdc::shm {

// Where the new pages come from.
struct NewPages {
  int fd = -1;  // -1: private anonymous memory
  uint64_t file_offset = 0;
};

enum class WriterPolicy {
  // Every write waits, those that the kernel does for a thread included. Takes a privilege.
  kAllOrNothing,
  // If that is not allowed, writes from user code wait; a thread that lets the kernel write there
  // just then, in read(2) say, gets EFAULT. For memory that nobody should be writing to any more.
  kUserWritesOnly,
};

// 0, or errno with everything as it was; EPERM: the program has other threads and may not stop their
// writes. The range: whole pages, mapped readable and writable. Not from the firmware thread. Blocks.
int ExchangePages(uint64_t begin, uint64_t end, const NewPages& pages, WriterPolicy policy);

// The same for a process that has only just been forked: one thread, no firmware thread, no malloc.
int ExchangePagesAfterFork(uint64_t begin, uint64_t end, const NewPages& pages);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_EXCHANGE_H_
