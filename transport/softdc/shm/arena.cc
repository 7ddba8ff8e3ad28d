// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace sluice::softdc::shm {
namespace {
constexpr uint64_t kAlignBytes = 128;  // one line pair, so that neighbours never share a prefetch
constexpr uint64_t kPageBytes = 4096;
}  // namespace

std::unique_ptr<Arena> Arena::Create(uint64_t context_id, uint64_t size_bytes) {
  const int fd = memfd_create("softdc-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  if (ftruncate(fd, size_bytes) != 0 ||
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    close(fd);
    return nullptr;
  }
  void* base = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) {
    close(fd);
    return nullptr;
  }
  auto arena = std::unique_ptr<Arena>(new Arena(fd, static_cast<std::byte*>(base), size_bytes));
  const uint64_t table_offset = kPageBytes;
  const uint64_t table_bytes = sizeof(MemoryRegionEntry) * uint64_t{kMaxMemoryRegions};
  ArenaHeader& header = *new (base) ArenaHeader{};
  header.layout_version = kLayoutVersion;
  header.pid = getpid();
  header.context_id = context_id;
  header.size_bytes = size_bytes;
  header.memory_regions_offset = table_offset;
  header.memory_region_count = kMaxMemoryRegions;
  header.magic = kArenaMagic;
  std::lock_guard lock(arena->mutex_);
  arena->next_ = table_offset + table_bytes;
  return arena;
}

Arena::~Arena() {
  munmap(base_, size_bytes_);
  close(fd_);
}

MemoryRegionEntry* Arena::memory_regions() {
  return At<MemoryRegionEntry>(header().memory_regions_offset);
}

uint64_t Arena::Rounded(uint64_t size_bytes) {
  // Small blocks are multiples of the line pair. Large blocks are multiples of an eighth of a power of two,
  // so that few classes exist.
  const uint64_t step = size_bytes <= kPageBytes
                            ? kAlignBytes
                            : std::max(kAlignBytes, std::bit_floor(size_bytes) / 8);
  return (size_bytes + step - 1) / step * step;
}

bool Arena::Punch(uint64_t offset, uint64_t size_bytes) const {
  return fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                   static_cast<off_t>(offset + kKeptBytes),
                   static_cast<off_t>(size_bytes - kKeptBytes)) == 0;
}

uint64_t Arena::Allocate(uint64_t size_bytes) {
  const uint64_t rounded = Rounded(size_bytes);
  uint64_t offset = 0;
  {
    std::lock_guard lock(mutex_);
    auto& list = free_[rounded];
    if (list.empty()) {
      if (rounded > size_bytes_ - next_) return 0;
      offset = next_;
      next_ += rounded;
      return offset;
    }
    offset = list.back();
    list.pop_back();
  }
  const bool punched = rounded >= kLargeBlockBytes && Punch(offset, rounded);
  std::memset(base_ + offset, 0, punched ? kKeptBytes : rounded);
  return offset;
}

void Arena::Free(uint64_t offset, uint64_t size_bytes) {
  if (offset == 0) return;
  std::lock_guard lock(mutex_);
  free_[Rounded(size_bytes)].push_back(offset);
}

void Arena::Retire(uint64_t offset, uint64_t size_bytes) {
  if (offset == 0) return;
  std::lock_guard lock(mutex_);
  retired_.push_back({.offset = offset, .size_bytes = size_bytes});
  const bool were_many = retired_bytes_ >= kManyRetiredBytes;
  retired_bytes_ += Rounded(size_bytes);
  if (!were_many && retired_bytes_ >= kManyRetiredBytes && many_ != nullptr) many_();
}

std::vector<Arena::Block> Arena::TakeRetired() {
  std::lock_guard lock(mutex_);
  retired_bytes_ = 0;
  return std::exchange(retired_, {});
}

void Arena::OnManyRetired(std::function<void()> many) {
  std::lock_guard lock(mutex_);
  many_ = std::move(many);
}

uint64_t Arena::unused_bytes() {
  std::lock_guard lock(mutex_);
  return size_bytes_ - next_;
}

}  // namespace sluice::softdc::shm
