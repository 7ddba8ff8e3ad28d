// SPDX-License-Identifier: Apache-2.0
//
// Copies from and to memory at addresses that an application gives, which may be invalid. The kernel does the
// copy, so an invalid address gives EFAULT instead of a crash. If process_vm_readv is forbidden, all
// addresses except null are trusted.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::ucma {

// Return 0 or EFAULT. After EFAULT, the contents of `to` are undefined.
int CopyFromUser(void* to, uint64_t from, size_t bytes);
int CopyToUser(uint64_t to, const void* from, size_t bytes);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_
