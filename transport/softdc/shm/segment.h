// SPDX-License-Identifier: Apache-2.0
//
// Finds out whether memory that a program registers is already shared: a MAP_SHARED mapping of a
// memory file that this process still holds open and that cannot shrink under a peer's feet. If so,
// peers map the file and reach it directly; if not, it is private and they go through the kernel.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_SEGMENT_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_SEGMENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace sluice::softdc::shm {

struct SharedRange {
  dev_t device = 0;
  ino_t inode = 0;
  uint64_t file_offset = 0;  // of the first byte asked for
  int fd = -1;               // a duplicate; the caller closes it
  uint64_t file_bytes = 0;
};

// Reads /proc/self: slow, for registration only. Nothing when any part of the range is not shared
// that way, or not readable.
std::optional<SharedRange> FindSharedRange(const void* address, size_t length_bytes);

// Whether every page of the range is mapped, with whatever access. Asks the kernel about the range
// alone, so it costs no more in a process of thousands of mappings.
bool IsPresent(const void* address, size_t length_bytes);

// Whether every page of the range is mapped with at least read access.
bool IsMapped(const void* address, size_t length_bytes);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SEGMENT_H_
