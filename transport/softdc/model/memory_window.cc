// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/memory_window.h"

#include <algorithm>
#include <cerrno>
#include <memory>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_region.h"
#include "transport/softdc/model/mutation.h"

namespace sluice::softdc {
namespace {

constexpr unsigned kWindowAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Accepted, but gives peers no right.
constexpr unsigned kIgnoredAccess = IBV_ACCESS_LOCAL_WRITE;
constexpr unsigned kWritingAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

uint32_t IndexOf(uint32_t key) { return key >> 8; }

bool Take(shm::MemoryRegionEntry& entry, uint32_t rkey) {
  if (Mutated(Mutation::kWindowStaysBound)) return true;
  return entry.key.compare_exchange_strong(rkey, 0, std::memory_order_seq_cst);
}

}  // namespace

ibv_mw* AllocateWindow(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
    errno = EINVAL;
    return nullptr;
  }
  Context& context = *Context::From(pd->context);
  uint32_t key = 0;
  const int index = context.TakeMemoryRegion(&key);
  if (index < 0) {
    errno = ENOMEM;
    return nullptr;
  }
  auto mw = std::make_unique<ibv_mw>();
  context.memory_regions()[index].bound_qp = 0;
  context.memory_regions()[index].parent = 0;
  *mw = {.context = pd->context,
         .pd = pd,
         .rkey = key,
         .handle = static_cast<uint32_t>(index),
         .type = type};
  context.AddWindow(mw->handle, Pd::From(pd)->number);
  Pd::From(pd)->users.fetch_add(1);
  return mw.release();
}

int DeallocateWindow(ibv_mw* mw) {
  const std::unique_ptr<ibv_mw> ended(mw);
  Context& context = *Context::From(mw->context);
  context.memory_regions()[mw->handle].key.store(0, std::memory_order_seq_cst);
  context.WaitForCopies();
  context.RemoveWindow(mw->handle);
  context.ReturnMemoryRegion(static_cast<int>(mw->handle));
  Pd::From(mw->pd)->users.fetch_sub(1);
  return 0;
}

void UnbindWindow(Context& context, uint32_t pd, uint32_t window_rkey) {
  const uint32_t index = IndexOf(window_rkey);
  if (!context.IsWindow(index, pd)) return;
  context.memory_regions()[index].key.store(0, std::memory_order_seq_cst);
}

ibv_wc_status BindWindow(Context& context, uint32_t pd, uint32_t qp_number, uint32_t window_rkey,
                         uint32_t new_rkey, const ibv_mw_bind_info& info) {
  const uint32_t index = IndexOf(window_rkey);
  if (!context.IsWindow(index, pd)) return IBV_WC_MW_BIND_ERR;
  if (info.length == 0) {
    context.memory_regions()[index].key.store(0, std::memory_order_seq_cst);
    return IBV_WC_SUCCESS;
  }
  if (info.mr == nullptr || Context::From(info.mr->context) != &context ||
      (info.mw_access_flags & ~(kWindowAccess | kIgnoredAccess)) != 0) {
    return IBV_WC_MW_BIND_ERR;
  }
  shm::MemoryRegionEntry& window = context.memory_regions()[index];
  const shm::MemoryRegionEntry& region = context.memory_regions()[IndexOf(info.mr->rkey)];
  const uint64_t into = info.addr - region.address;
  const bool anything = Mutated(Mutation::kAnyBind);
  if (window.key.load(std::memory_order_acquire) != 0 || info.mr->rkey == 0 ||
      region.key.load(std::memory_order_acquire) != info.mr->rkey || region.pd != pd ||
      ((region.access & IBV_ACCESS_MW_BIND) == 0 && !anything) ||
      ((info.mw_access_flags & kWritingAccess) != 0 &&
       (region.access & IBV_ACCESS_LOCAL_WRITE) == 0 && !anything) ||
      info.addr < region.address || into > region.length_bytes ||
      info.length > region.length_bytes - into) {
    return IBV_WC_MW_BIND_ERR;
  }
  window.access =
      Mutated(Mutation::kWindowGrantsAll) ? kWindowAccess : info.mw_access_flags & kWindowAccess;
  window.pd = pd;
  window.address = info.addr;
  window.length_bytes = info.length;
  window.bound_qp = qp_number;
  window.parent = IndexOf(info.mr->rkey);
  // The part of the region's shared bytes that is inside, counted from the window's start.
  const uint64_t begin = std::clamp(region.shared_begin, into, into + info.length);
  const uint64_t end = std::clamp(region.shared_end, begin, into + info.length);
  window.segment = region.segment;
  window.segment_offset = region.segment_offset + (begin - std::min(begin, region.shared_begin));
  window.shared_begin = begin - into;
  window.shared_end = end - into;
  const uint32_t key = index << 8 | (new_rkey & 0xff);
  context.UseWindowKey(index, key);
  window.key.store(key, std::memory_order_release);
  return IBV_WC_SUCCESS;
}

ibv_wc_status InvalidateWindow(Context& context, uint32_t pd, uint32_t rkey) {
  const uint32_t index = IndexOf(rkey);
  if (!context.IsWindow(index, pd) || !Take(context.memory_regions()[index], rkey)) {
    return IBV_WC_MW_BIND_ERR;
  }
  return IBV_WC_SUCCESS;
}

bool MayInvalidateArriving(std::span<const shm::MemoryRegionEntry> regions, uint32_t rkey,
                           uint32_t pd, uint32_t qp_number) {
  const uint32_t index = IndexOf(rkey);
  if (rkey == 0 || index >= regions.size()) return false;
  const shm::MemoryRegionEntry& entry = regions[index];
  return entry.key.load(std::memory_order_acquire) == rkey && entry.IsWindow() && entry.pd == pd &&
         MayPass(entry, qp_number);
}

bool InvalidateArriving(std::span<shm::MemoryRegionEntry> regions, uint32_t rkey, uint32_t pd,
                        uint32_t qp_number) {
  return MayInvalidateArriving(regions, rkey, pd, qp_number) && Take(regions[IndexOf(rkey)], rkey);
}

bool HasBoundWindow(Context& context, uint32_t index) {
  return context.AnyWindow([&](uint32_t window) {
    const shm::MemoryRegionEntry& entry = context.memory_regions()[window];
    return entry.key.load(std::memory_order_acquire) != 0 && entry.parent == index;
  });
}

}  // namespace sluice::softdc
