// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/memory_region.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/shm/placement.h"
#include "transport/softdc/shm/segment.h"

namespace sluice::softdc {
namespace {

constexpr int kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING |
                             IBV_ACCESS_ON_DEMAND;

// Rights that mlx5's driver changes in place. For other rights it makes a new key.
constexpr int kChangedInPlace = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                IBV_ACCESS_REMOTE_READ | IBV_ACCESS_RELAXED_ORDERING;

// 0 or errno.
int CheckAccess(Context& context, int access) {
  const bool remote_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (remote_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  const bool pages = context.device().fabric().SharesMemory();
  const int known = pages ? kKnownAccess : kKnownAccess & ~IBV_ACCESS_ON_DEMAND;
  return (access & ~known) != 0 ? EOPNOTSUPP : 0;
}

// Bytes that this process has registered with a limit, over all contexts: a kernel counts pinned pages per process.
std::atomic<uint64_t> g_locked_bytes{0};

// Returns the bytes that are pinned for the range: whole pages.
uint64_t PinnedBytes(const void* address, size_t length_bytes) {
  static const auto page_bytes = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uint64_t>(address) / page_bytes;
  const auto last = (reinterpret_cast<uint64_t>(address) + length_bytes - 1) / page_bytes;
  return (last - begin + 1) * page_bytes;
}

// Bytes that count against memory.memlock_bytes, until this object is destroyed or the registration takes them over.
class LockedBytes {
 public:
  // False: beyond the limit.
  bool Take(uint64_t limit_bytes, uint64_t bytes) {
    if (bytes > limit_bytes) return false;
    uint64_t before = g_locked_bytes.load();
    do {
      if (before > limit_bytes - bytes) return false;
    } while (!g_locked_bytes.compare_exchange_weak(before, before + bytes));
    bytes_ = bytes;
    return true;
  }
  ~LockedBytes() { g_locked_bytes.fetch_sub(bytes_); }
  uint64_t Release() { return std::exchange(bytes_, 0); }

 private:
  uint64_t bytes_ = 0;
};

struct Region {
  ibv_mr base{};  // the user's handle; must stay first
  uint64_t placement = 0;
  uint32_t segment = shm::kPrivateSegment;  // segment in use; files of moved memory stay
  uint64_t locked_bytes = 0;
};

}  // namespace

ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  Context& context = *Context::From(pd->context);
  const bool everything = (access & IBV_ACCESS_ON_DEMAND) != 0 && length_bytes == SIZE_MAX;
  if (length_bytes == 0 || everything ||
      reinterpret_cast<uint64_t>(address) + length_bytes < length_bytes) {
    errno = EINVAL;
    return nullptr;
  }
  if (const int error = CheckAccess(context, access); error != 0) {
    errno = error;
    return nullptr;
  }
  // Memory that is paged on demand is not pinned.
  LockedBytes locked;
  const uint64_t limit_bytes = context.dials().memory.memlock_bytes;
  if (limit_bytes != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0 &&
      !locked.Take(limit_bytes, PinnedBytes(address, length_bytes))) {
    errno = ENOMEM;
    return nullptr;
  }
  std::optional<shm::Placement> placement;
  if ((access & IBV_ACCESS_ON_DEMAND) != 0) {
    // Peers copy through the kernel, which uses the mapping at the time of the copy.
    placement.emplace();
  } else if (context.device().fabric().SharesMemory()) {
    placement = shm::PlaceRange(address, length_bytes, context.dials().memory.move_private);
  } else if (shm::IsPresent(address, length_bytes)) {
    placement.emplace();
  }
  if (!placement) {
    errno = EFAULT;
    return nullptr;
  }
  uint32_t key = 0;
  const int index = context.TakeMemoryRegion(&key);
  if (index < 0) {
    shm::EndPlacement(placement->id, /*quiet=*/true);
    errno = ENOMEM;
    return nullptr;
  }
  shm::MemoryRegionEntry& entry = context.memory_regions()[index];
  entry.access = static_cast<uint32_t>(access);
  entry.pd = Pd::From(pd)->number;
  entry.address = reinterpret_cast<uint64_t>(address);
  entry.length_bytes = length_bytes;
  entry.segment = shm::kPrivateSegment;
  if (placement->fd) {
    entry.segment = context.AddSegmentUse(std::move(placement->fd), placement->file_bytes,
                                          placement->device, placement->inode);
  }
  const bool shared = entry.segment != shm::kPrivateSegment;
  entry.segment_offset = shared ? placement->file_offset : 0;
  entry.shared_begin = shared ? placement->shared_begin : 0;
  entry.shared_end = shared ? placement->shared_end : 0;
  entry.bound_qp = 0;
  entry.parent = 0;
  SOFTDC_KILL_POINT(kRegionHalfWritten);
  entry.key.store(key, std::memory_order_release);
  SOFTDC_KILL_POINT(kRegionPublished);

  auto region = std::make_unique<Region>();
  region->base = {.context = pd->context,
                  .pd = pd,
                  .addr = address,
                  .length = length_bytes,
                  .handle = static_cast<uint32_t>(index),
                  .lkey = key,
                  .rkey = key};
  region->placement = placement->id;
  region->locked_bytes = locked.Release();
  region->segment = placement->moved ? shm::kPrivateSegment : entry.segment;
  Pd::From(pd)->users.fetch_add(1);
  return &region.release()->base;
}

int DeregisterMemory(ibv_mr* mr) {
  Context& context = *Context::From(mr->context);
  if (HasBoundWindow(context, mr->handle)) return EBUSY;
  const std::unique_ptr<Region> region(reinterpret_cast<Region*>(mr));
  shm::MemoryRegionEntry& entry = context.memory_regions()[mr->handle];
  entry.key.store(0, std::memory_order_seq_cst);
  SOFTDC_KILL_POINT(kRegionTakenBack);
  context.WaitForCopies();
  context.DropSegmentUse(region->segment);
  shm::EndPlacement(region->placement, /*quiet=*/true);
  context.ReturnMemoryRegion(static_cast<int>(mr->handle));
  g_locked_bytes.fetch_sub(region->locked_bytes);
  Pd::From(mr->pd)->users.fetch_sub(1);
  return 0;
}

int AccessOf(const ibv_mr& mr) {
  return static_cast<int>(Context::From(mr.context)->memory_regions()[mr.handle].access);
}

int ChangeRights(ibv_mr* mr, ibv_pd* pd, int access) {
  Context& context = *Context::From(mr->context);
  if (const int error = CheckAccess(context, access); error != 0) return errno = error;
  if (((access ^ AccessOf(*mr)) & ~kChangedInPlace) != 0) return kNeedsNewKeys;
  shm::MemoryRegionEntry& entry = context.memory_regions()[mr->handle];
  // Peers may read at the same time. Each word is the old one or the new one.
  std::atomic_ref(entry.access).store(static_cast<uint32_t>(access), std::memory_order_seq_cst);
  std::atomic_ref(entry.pd).store(Pd::From(pd)->number, std::memory_order_seq_cst);
  context.WaitForCopies();
  Pd::From(pd)->users.fetch_add(1);
  Pd::From(mr->pd)->users.fetch_sub(1);
  mr->pd = pd;
  return 0;
}

int ReregisterMemory(ibv_mr* mr, ibv_pd* pd, void* address, size_t length_bytes, int access) {
  if (HasBoundWindow(*Context::From(mr->context), mr->handle)) return errno = EBUSY;
  ibv_mr* registered = RegisterMemory(pd, address, length_bytes, access);
  if (registered == nullptr) return errno;
  // The user's handle takes over the new registration. The old registration ends under the other handle.
  std::swap(*reinterpret_cast<Region*>(mr), *reinterpret_cast<Region*>(registered));
  return DeregisterMemory(registered);
}

}  // namespace sluice::softdc
