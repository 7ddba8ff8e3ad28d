// SPDX-License-Identifier: Apache-2.0
//
// Finds whether memory that a program registers is already shared. It is shared if it is a MAP_SHARED mapping
// of a memory file that this process holds open and that is sealed against shrinking. Peers map such a file
// and access it directly. Other memory is private, and peers access it through the kernel.
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
  uint64_t file_offset = 0;  // of the first byte of the range
  int fd = -1;               // a duplicate; the caller closes it
  uint64_t file_bytes = 0;
};

// Finds the file behind a range. Returns nullopt if a part of the range is not shared in that way, or not
// readable. Slow, because it reads /proc/self: for registration only.
std::optional<SharedRange> FindSharedRange(const void* address, size_t length_bytes);

// Returns whether every page of the range is mapped, with any access. Asks the kernel about this range only,
// so the cost does not grow with the number of mappings of the process.
bool IsPresent(const void* address, size_t length_bytes);

// Returns whether every page of the range is mapped with at least read access.
bool IsMapped(const void* address, size_t length_bytes);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_SEGMENT_H_
