// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/placement.h"

#include <fcntl.h>

#include <utility>

#include "transport/softdc/shm/moved_memory.h"
#include "transport/softdc/shm/segment.h"

namespace sluice::softdc::shm {

std::optional<Placement> PlaceRange(const void* address, size_t length_bytes, bool move) {
  // Memory in a file of the program needs no further check: one list of mappings instead of three.
  const auto shared = FindSharedRange(address, length_bytes);
  UniqueFd shared_fd(shared.has_value() ? shared->fd : -1);
  if (!shared.has_value() && !IsMapped(address, length_bytes)) return std::nullopt;
  Placement placement;
  const uint64_t begin = reinterpret_cast<uint64_t>(address);
  const MovedMemory::Place place = MovedMemory::Get().Enter(
      begin, begin + length_bytes, move && !shared.has_value(), &placement.id);
  if (place.file != nullptr) {
    placement.fd = UniqueFd(fcntl(place.file->fd(), F_DUPFD_CLOEXEC, 0));
    if (!placement.fd) return placement;  // out of descriptors: peers use the kernel
    placement.shared_begin = place.begin - begin;
    placement.shared_end = place.end - begin;
    placement.file_offset = place.file_offset;
    placement.file_bytes = place.file->size_bytes();
    placement.device = place.file->device();
    placement.inode = place.file->inode();
    placement.moved = true;
    return placement;
  }
  if (shared.has_value()) {
    placement.shared_end = length_bytes;
    placement.file_offset = shared->file_offset;
    placement.fd = std::move(shared_fd);
    placement.file_bytes = shared->file_bytes;
    placement.device = shared->device;
    placement.inode = shared->inode;
  }
  return placement;
}

void EndPlacement(uint64_t id, bool quiet) { MovedMemory::Get().Leave(id, quiet); }

}  // namespace sluice::softdc::shm
