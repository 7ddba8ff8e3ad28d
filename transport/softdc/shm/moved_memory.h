// SPDX-License-Identifier: Apache-2.0
//
// MovedMemory: private memory that the program has registered and that was moved in place onto pages of a
// file that peers can map. Addresses and contents stay the same. Peers save one copy compared with access
// through the kernel. One object per process, since several contexts may register the same bytes of its
// address space.
//
//   registered   |····#######################···|     # whole pages: moved; · ends: stay private
//   private      the whole range, if it is not plain anonymous memory, is already registered as private, or
//                cannot be exchanged safely now (exchange.h)
//
// While registered         the pages belong to the file; the program sees no difference.
// After the last Leave     they become private again, with their contents; a late write of a slow peer
//                          goes to the file only.
// munmap by the program    is allowed; the last Leave finds it and frees the pages of the file.
// fork                     the child gets private copies before fork returns in the parent, so neither
//                          sees the writes of the other. Not after _Fork, vfork or a bare clone: there,
//                          registered bytes are shared until exec.
//
// Threads       Any, except the firmware thread. A call may take milliseconds per megabyte.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_MOVED_MEMORY_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_MOVED_MEMORY_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/softdc/shm/page_file.h"

namespace sluice::softdc::shm {

class MovedMemory {
 public:
  static MovedMemory& Get();

  // The part of a range that is in a file. Files live as long as the process.
  struct Place {
    uint64_t begin = 0;  // addresses; begin == end: all of the range is private
    uint64_t end = 0;
    uint64_t file_offset = 0;  // of begin
    const PageFile* file = nullptr;
  };

  // Records a registered range. If `move` is true and the range can be moved, moves it. `id` identifies the
  // range for Leave.
  Place Enter(uint64_t begin, uint64_t end, bool move, uint64_t* id);
  // Ends the registration. quiet: no peer writes to the range from now on. If false, the place in the file is
  // not reused. Ignores an id from before a fork.
  void Leave(uint64_t id, bool quiet);

  // Returns the number of bytes that are in files now.
  uint64_t moved_bytes();

 private:
  struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t file_offset = 0;
    PageFile* file = nullptr;
    bool quiet = true;

    bool Overlaps(uint64_t other_begin, uint64_t other_end) const {
      return begin < other_end && other_begin < end;
    }
  };

  MovedMemory();
  static void AtForkPrepare();
  static void AtForkParent();
  static void AtForkChild();

  // All require mutex_.
  Place PlaceInMoved(uint64_t begin, uint64_t end) const;
  Place Move(uint64_t begin, uint64_t end);
  bool IsRegistered(uint64_t begin, uint64_t end) const;
  void RestoreUnused();

  std::mutex mutex_;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Range> registered_;  // by id; only begin and end
  std::vector<Range> moved_;
  std::vector<std::unique_ptr<PageFile>> files_;
  int fork_pipe_[2] = {-1, -1};
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_MOVED_MEMORY_H_
