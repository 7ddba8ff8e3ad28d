// SPDX-License-Identifier: Apache-2.0
//
// Memory that an application points to, which may not be there: read and written by the kernel on
// our behalf, so that a wrong pointer is EFAULT and no crash. Where process_vm_readv is forbidden,
// pointers other than null are trusted. Thread-safe.
#ifndef SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_
#define SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace sluice::softdc::ucma {

// 0 or EFAULT; then what is in `to` is undefined.
int CopyFromUser(void* to, uint64_t from, size_t bytes);
int CopyToUser(uint64_t to, const void* from, size_t bytes);

}  // namespace sluice::softdc::ucma

#endif  // SLUICE_TRANSPORT_SOFTDC_UCMA_USER_MEMORY_H_
