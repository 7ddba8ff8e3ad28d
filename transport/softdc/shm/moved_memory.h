// SPDX-License-Identifier: Apache-2.0
//
// MovedMemory: private memory that the program has registered, moved in place onto pages of a file
// that peers can map: same address, same contents, a copy less than through the kernel. One per
// process, since the address space is one: several contexts may register the same bytes.
//
//   registered   |····#######################···|     # whole pages: moved; · ends: stay private
//   private      what is no plain anonymous memory, or registered already as private, or cannot be
//                exchanged safely now (exchange.h): all of it
//
// While it is registered   the pages are the file's; the program sees no difference.
// With the last Leave      they become private again, with what is in them; what a slow
//                          peer wrote into the file stays in the file.
// munmap by the program    its own affair; noticed at the last Leave, and the file's pages go.
// fork                     the child gets private copies before fork returns in the parent, so neither
//                          sees the other's writes. Not after _Fork, vfork or a bare clone: there
//                          registered bytes are shared until exec.
//
// Threads       Any thread, but not the firmware thread. Calls may take milliseconds a megabyte.
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

  // The part of a range that stands in a file. Files live as long as the process.
  struct Place {
    uint64_t begin = 0;  // addresses; begin == end: all of the range is private
    uint64_t end = 0;
    uint64_t file_offset = 0;  // of begin
    const PageFile* file = nullptr;
  };

  // Takes note of a registered range, and moves it if `move` says so and it can be done. `id` is for
  // Leave.
  Place Enter(uint64_t begin, uint64_t end, bool move, uint64_t* id);
  // The registration has ended. quiet: nobody writes there any more; otherwise the place in the file
  // is not used again. An id of before a fork means nothing.
  void Leave(uint64_t id, bool quiet);

  // Bytes that stand in files now.
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

  // All under mutex_.
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
