// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/moved_memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <utility>

#include "transport/softdc/loop/loop.h"
#include "transport/softdc/shm/address_map.h"
#include "transport/softdc/shm/exchange.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc::shm {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Peers map each file completely, perhaps some thousand files: 47 bits of address space must suffice.
constexpr uint64_t kFileBytes = uint64_t{16} << 30;

// Calls visit(begin, end) for each part of the range that still maps the given place in the file.
void ForEachPartStillThere(uint64_t begin, uint64_t end, const PageFile& file, uint64_t file_offset,
                           const std::function<void(uint64_t, uint64_t)>& visit) {
  std::vector<std::pair<uint64_t, uint64_t>> parts;
  ForEachMapping([&](const Mapping& m) {
    if (m.begin >= end) return false;
    const uint64_t part_begin = std::max(m.begin, begin), part_end = std::min(m.end, end);
    if (part_begin < part_end && m.inode == file.inode() && m.device == file.device() &&
        m.file_offset + (part_begin - m.begin) == file_offset + (part_begin - begin)) {
      parts.emplace_back(part_begin, part_end);
    }
    return true;
  });
  for (const auto& [part_begin, part_end] : parts) visit(part_begin, part_end);
}

bool IsWhollyThere(uint64_t begin, uint64_t end, const PageFile& file, uint64_t file_offset) {
  const uint64_t first_page = begin / kPageBytes * kPageBytes;
  const uint64_t last_page = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  uint64_t next = first_page;
  ForEachPartStillThere(first_page, last_page, file, file_offset - (begin - first_page),
                        [&](uint64_t part_begin, uint64_t part_end) {
                          if (part_begin == next) next = part_end;
                        });
  return next == last_page;
}

}  // namespace

MovedMemory& MovedMemory::Get() {
  // Outlives static destructors, like the Loop.
  static MovedMemory* const memory = new MovedMemory();
  return *memory;
}

MovedMemory::MovedMemory() {
  // Registered after the loop's handlers, so that our prepare handler runs first: an exchange in progress
  // still needs the loop.
  Loop::Get();
  pthread_atfork(&AtForkPrepare, &AtForkParent, &AtForkChild);
}

MovedMemory::Place MovedMemory::Enter(uint64_t begin, uint64_t end, bool move, uint64_t* id) {
  std::lock_guard lock(mutex_);
  Place place = PlaceInMoved(begin, end);
  if (place.file == nullptr && move) place = Move(begin, end);
  *id = next_id_++;
  registered_[*id] = Range{.begin = begin, .end = end};
  return place;
}

void MovedMemory::Leave(uint64_t id, bool quiet) {
  std::lock_guard lock(mutex_);
  const auto it = registered_.find(id);
  if (it == registered_.end()) return;
  for (Range& range : moved_) {
    if (range.Overlaps(it->second.begin, it->second.end)) range.quiet &= quiet;
  }
  registered_.erase(it);
  RestoreUnused();
}

uint64_t MovedMemory::moved_bytes() {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const Range& range : moved_) bytes += range.end - range.begin;
  return bytes;
}

bool MovedMemory::IsRegistered(uint64_t begin, uint64_t end) const {
  return std::any_of(registered_.begin(), registered_.end(),
                     [&](const auto& entry) { return entry.second.Overlaps(begin, end); });
}

// If the range overlaps several moved ranges, returns the largest overlap. The rest is accessed as private
// memory, which works for any mapping.
MovedMemory::Place MovedMemory::PlaceInMoved(uint64_t begin, uint64_t end) const {
  Place best;
  for (const Range& range : moved_) {
    if (!range.Overlaps(begin, end)) continue;
    Place place{.begin = std::max(begin, range.begin), .end = std::min(end, range.end)};
    place.file_offset = range.file_offset + (place.begin - range.begin);
    place.file = range.file;
    if (place.end - place.begin > best.end - best.begin &&
        IsWhollyThere(place.begin, place.end, *place.file, place.file_offset)) {
      best = place;
    }
  }
  return best;
}

MovedMemory::Place MovedMemory::Move(uint64_t begin, uint64_t end) {
  begin = (begin + kPageBytes - 1) / kPageBytes * kPageBytes;
  end = end / kPageBytes * kPageBytes;
  // Peers may be writing through the kernel to memory that is already registered.
  if (begin >= end || IsRegistered(begin, end) || !IsPlainPrivate(begin, end)) return {};
  Range range{.begin = begin, .end = end};
  std::optional<uint64_t> offset;
  for (const auto& file : files_) {
    offset = file->Allocate(end - begin);
    range.file = file.get();
    if (offset) break;
  }
  if (!offset) {
    auto file = PageFile::Create(std::max(kFileBytes, end - begin));
    if (file == nullptr) return {};
    offset = file->Allocate(end - begin);
    range.file = file.get();
    files_.push_back(std::move(file));
  }
  range.file_offset = *offset;
  const int error = ExchangePages(begin, end, {.fd = range.file->fd(), .file_offset = *offset},
                                  WriterPolicy::kAllOrNothing);
  if (error != 0) {
    range.file->Free(*offset, end - begin, /*reuse=*/true);
    return {};
  }
  moved_.push_back(range);
  SOFTDC_KILL_POINT(kPagesMoved);
  return {.begin = begin, .end = end, .file_offset = *offset, .file = range.file};
}

// If a range cannot be made private now, the next Leave retries. Until then it stays shared, in its place.
void MovedMemory::RestoreUnused() {
  std::erase_if(moved_, [&](const Range& range) {
    if (IsRegistered(range.begin, range.end)) return false;
    bool restored = true;
    ForEachPartStillThere(
        range.begin, range.end, *range.file, range.file_offset, [&](uint64_t begin, uint64_t end) {
          restored &= ExchangePages(begin, end, NewPages{}, WriterPolicy::kUserWritesOnly) == 0;
        });
    SOFTDC_KILL_POINT(kPagesPrivateAgain);
    if (restored) range.file->Free(range.file_offset, range.end - range.begin, range.quiet);
    return restored;
  });
}

// The child makes its copies before the parent continues, so they hold the contents at the time of the fork.
void MovedMemory::AtForkPrepare() {
  MovedMemory& memory = Get();
  memory.mutex_.lock();
  memory.fork_pipe_[0] = memory.fork_pipe_[1] = -1;
  if (!memory.moved_.empty() && pipe2(memory.fork_pipe_, O_CLOEXEC) != 0) {
    memory.fork_pipe_[0] = memory.fork_pipe_[1] = -1;
  }
}

void MovedMemory::AtForkParent() {
  MovedMemory& memory = Get();
  const auto [from_child, to_parent] = memory.fork_pipe_;
  if (from_child >= 0) {
    close(to_parent);
    char byte;
    while (read(from_child, &byte, 1) < 0 && errno == EINTR) {
    }
    close(from_child);
  }
  memory.mutex_.unlock();
}

void MovedMemory::AtForkChild() {
  MovedMemory& memory = Get();
  for (const Range& range : memory.moved_) {
    ForEachPartStillThere(range.begin, range.end, *range.file, range.file_offset,
                          [](uint64_t begin, uint64_t end) {
                            if (ExchangePagesAfterFork(begin, end, NewPages{}) == 0) return;
                            // No memory for a copy: makes the range read-only. A write then faults in the
                            // child instead of changing the memory of the parent.
                            mprotect(reinterpret_cast<void*>(begin), end - begin, PROT_READ);
                          });
  }
  // The child must not allocate from the files of the parent.
  memory.moved_.clear();
  memory.registered_.clear();
  memory.files_.clear();
  if (memory.fork_pipe_[0] >= 0) {
    close(memory.fork_pipe_[0]);
    close(memory.fork_pipe_[1]);
  }
  memory.mutex_.unlock();
}

}  // namespace sluice::softdc::shm
