// SPDX-License-Identifier: Apache-2.0
//
// Arena: the owner's side of the shared segment of a context. It is a sealed, sparse memory file with an
// allocator. Freed blocks are reused by size class and read as zeros when they are allocated again. Allocate
// gives the pages of a large block back to the kernel, except for its first bytes, instead of clearing them: a
// peer waits meanwhile, and to clear pages that were never touched takes a page fault each. Free does not do it,
// because it is called with spin locks held.
//
// A block that other processes may still read is retired, not freed. The owner of the block asks these
// processes to drop destroyed objects (fabric_shm/inbound_links.h). After all have answered, the owner frees
// the blocks that TakeRetired() returned.
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_SHM_ARENA_H_
#define SLUICE_TRANSPORT_SOFTDC_SHM_ARENA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "transport/softdc/shm/layout.h"

namespace sluice::softdc::shm {

inline constexpr uint64_t kManyRetiredBytes = 1 << 16;
// Size from which a block that is allocated again gives its pages back, and how much of its beginning it keeps.
inline constexpr uint64_t kLargeBlockBytes = 1 << 16;
inline constexpr uint64_t kKeptBytes = 1 << 14;

class Arena {
 public:
  // Returns null and sets errno if the memory cannot be allocated. `size_bytes` is the size of the address
  // space. The kernel allocates a page at its first access.
  static std::unique_ptr<Arena> Create(uint64_t context_id, uint64_t size_bytes = kArenaBytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int fd() const { return fd_; }
  ArenaHeader& header() { return *reinterpret_cast<ArenaHeader*>(base_); }
  MemoryRegionEntry* memory_regions();

  // Returns the offset of a zeroed block that is aligned to 128 bytes. Returns 0 if the arena is full.
  uint64_t Allocate(uint64_t size_bytes);
  void Free(uint64_t offset, uint64_t size_bytes);
  // Retires a block that another process may still read. Does nothing if offset is 0.
  void Retire(uint64_t offset, uint64_t size_bytes);
  struct Block {
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };
  // Returns the blocks that were retired since the last call. The caller frees them.
  std::vector<Block> TakeRetired();
  // Sets the callback for many retired blocks. Retire calls `many` when at least kManyRetiredBytes are
  // retired, once until the next TakeRetired. `many` must not call this object. Null: no callback.
  void OnManyRetired(std::function<void()> many);
  // Returns the address space that a block of this size occupies. At most an eighth of a block larger than a
  // page is unused.
  static uint64_t Rounded(uint64_t size_bytes);
  // Returns the number of bytes that were never allocated. Freed blocks are not included.
  uint64_t unused_bytes();

  template <typename T = std::byte>
  T* At(uint64_t offset) {
    return reinterpret_cast<T*>(base_ + offset);
  }

 private:
  Arena(int fd, std::byte* base, uint64_t size_bytes)
      : fd_(fd), base_(base), size_bytes_(size_bytes) {}
  // Gives the pages of a large block back, without its first kKeptBytes. Clears the bytes of pages that are
  // only partly in the block. Returns false without effect if the kernel refuses.
  bool Punch(uint64_t offset, uint64_t size_bytes) const;

  const int fd_;
  std::byte* const base_;
  const uint64_t size_bytes_;
  std::mutex mutex_;
  uint64_t next_ = 0;
  std::vector<Block> retired_;
  uint64_t retired_bytes_ = 0;
  std::function<void()> many_;
  std::map<uint64_t, std::vector<uint64_t>> free_;  // rounded size -> offsets
};

}  // namespace sluice::softdc::shm

#endif  // SLUICE_TRANSPORT_SOFTDC_SHM_ARENA_H_
