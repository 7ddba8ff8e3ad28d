// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/memory_region.h"

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "transport/softdc/shm/segment.h"

namespace sluice::softdc {
namespace {

constexpr int kKnownAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                             IBV_ACCESS_RELAXED_ORDERING;

}  // namespace

ibv_mr* RegisterMemory(ibv_pd* pd, void* address, size_t length_bytes, int access) {
  Context& context = *Context::From(pd->context);
  const bool remote_write = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if (length_bytes == 0 || (remote_write && (access & IBV_ACCESS_LOCAL_WRITE) == 0) ||
      reinterpret_cast<uint64_t>(address) + length_bytes < length_bytes) {
    errno = EINVAL;
    return nullptr;
  }
  if ((access & ~kKnownAccess) != 0) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  std::optional<shm::SharedRange> shared = shm::FindSharedRange(address, length_bytes);
  if (!shared && !shm::IsMapped(address, length_bytes)) {
    errno = EFAULT;
    return nullptr;
  }
  uint32_t key = 0;
  const int index = context.TakeMemoryRegion(&key);
  if (index < 0) {
    if (shared) UniqueFd closes(shared->fd);
    errno = ENOMEM;
    return nullptr;
  }
  uint32_t segment = shm::kPrivateSegment;
  if (shared) {
    segment = context.AddSegmentUse(UniqueFd(shared->fd), shared->file_bytes, shared->device,
                                    shared->inode);
  }
  shm::MemoryRegionEntry& entry = context.memory_regions()[index];
  entry.access = static_cast<uint32_t>(access);
  entry.pd = Pd::From(pd)->number;
  entry.segment = segment;
  entry.address = reinterpret_cast<uint64_t>(address);
  entry.length_bytes = length_bytes;
  entry.segment_offset = segment == shm::kPrivateSegment ? entry.address : shared->file_offset;
  entry.key.store(key, std::memory_order_release);

  auto mr = std::make_unique<ibv_mr>();
  *mr = {.context = pd->context,
         .pd = pd,
         .addr = address,
         .length = length_bytes,
         .handle = static_cast<uint32_t>(index),
         .lkey = key,
         .rkey = key};
  Pd::From(pd)->users.fetch_add(1);
  return mr.release();
}

int DeregisterMemory(ibv_mr* mr) {
  Context& context = *Context::From(mr->context);
  shm::MemoryRegionEntry& entry = context.memory_regions()[mr->handle];
  entry.key.store(0, std::memory_order_seq_cst);
  context.DropSegmentUse(entry.segment);
  context.ReturnMemoryRegion(static_cast<int>(mr->handle));
  Pd::From(mr->pd)->users.fetch_sub(1);
  delete mr;
  return 0;
}

}  // namespace sluice::softdc
