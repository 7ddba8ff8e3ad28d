// SPDX-License-Identifier: Apache-2.0
//
// Finds where the bytes of a range to be registered are for peers: in a file that they map, or in this process alone.
//
// Threads       Any, except the firmware thread. Slow: reads /proc/self, may move memory.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_PLACEMENT_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_PLACEMENT_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/softdc/loop/unique_fd.h"

namespace sluice::softdc::shm {

struct Placement {
  // The part in a file, from the start of the range; both 0: none of it is.
  uint64_t shared_begin = 0;
  uint64_t shared_end = 0;
  uint64_t file_offset = 0;  // of shared_begin
  UniqueFd fd;               // of the file, the caller's
  uint64_t file_bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;
  bool moved = false;  // the file is one of ours, the same for many ranges, and stays

  uint64_t id = 0;  // for EndPlacement
};

// move: private memory may be moved onto a file in place (moved_memory.h). Nothing: some of the range
// is not mapped readable.
std::optional<Placement> PlaceRange(const void* address, size_t length_bytes, bool move);

// The range is registered no more. quiet: no peer writes there any more.
void EndPlacement(uint64_t id, bool quiet);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_PLACEMENT_H_
