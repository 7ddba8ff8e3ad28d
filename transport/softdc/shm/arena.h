// SPDX-License-Identifier: Apache-2.0
//
// Arena: the owner's side of a context's shared segment: a sealed, sparse memory file with an allocator. Freed blocks are zeroed and reused by
// size class.
//
// A block that other processes may still read is retired, not freed. Its owner asks these processes to forget destroyed objects
// (fabric_shm/inbound_links.h). When all have answered, it frees the blocks of TakeRetired().
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

class Arena {
 public:
  // Null with errno set when the memory cannot be had. `size_bytes` of address space; memory is
  // taken as pages are touched.
  static std::unique_ptr<Arena> Create(uint64_t context_id, uint64_t size_bytes = kArenaBytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int fd() const { return fd_; }
  ArenaHeader& header() { return *reinterpret_cast<ArenaHeader*>(base_); }
  MemoryRegionEntry* memory_regions();

  // Zeroed, aligned to 128 bytes. 0 when the arena is full.
  uint64_t Allocate(uint64_t size_bytes);
  void Free(uint64_t offset, uint64_t size_bytes);
  // For blocks that another process may still be looking at.
  void Retire(uint64_t offset, uint64_t size_bytes);
  struct Block {
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };
  // What was retired since the last call; the caller frees it.
  std::vector<Block> TakeRetired();
  // `many` is called, in Retire and once until the next TakeRetired, when kManyRetiredBytes wait. It must
  // not call this object. Null: nobody.
  void OnManyRetired(std::function<void()> many);
  // How much address space a block takes. Waste is at most an eighth.
  static uint64_t Rounded(uint64_t size_bytes);
  // Never given out so far; freed blocks not among it.
  uint64_t unused_bytes();

  template <typename T = std::byte>
  T* At(uint64_t offset) {
    return reinterpret_cast<T*>(base_ + offset);
  }

 private:
  Arena(int fd, std::byte* base, uint64_t size_bytes)
      : fd_(fd), base_(base), size_bytes_(size_bytes) {}

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
