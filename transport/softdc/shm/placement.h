// SPDX-License-Identifier: Apache-2.0
//
// Finds where peers can reach the bytes of a range to be registered: in a file that peers map, or in private
// memory of this process.
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
  // The part in a file, as offsets from the start of the range. Both 0: no part is in a file.
  uint64_t shared_begin = 0;
  uint64_t shared_end = 0;
  uint64_t file_offset = 0;  // of shared_begin
  UniqueFd fd;               // of the file; owned by the caller
  uint64_t file_bytes = 0;
  dev_t device = 0;
  ino_t inode = 0;
  bool moved = false;  // the file belongs to softdc, serves many ranges, and stays

  uint64_t id = 0;  // for EndPlacement
};

// Finds the place of a range. move: private memory may be moved onto a file in place (moved_memory.h).
// Returns nullopt if a part of the range is not mapped readable.
std::optional<Placement> PlaceRange(const void* address, size_t length_bytes, bool move);

// Ends the registration of a range. quiet: no peer writes to the range from now on.
void EndPlacement(uint64_t id, bool quiet);

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_PLACEMENT_H_
