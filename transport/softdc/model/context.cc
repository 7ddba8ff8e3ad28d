// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/context.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/qp.h"
#include "transport/softdc/model/responder.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {
namespace {
constexpr uint32_t kCloseNumbers = 8;  // largest distance between close numbers
}  // namespace

Context* Context::From(ibv_context* context) {
  auto* verbs = reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) -
                                                 offsetof(verbs_context, context));
  return reinterpret_cast<Shell*>(verbs)->self;
}

Context* Context::Open(SoftDevice& device) {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != sizeof(id)) return nullptr;
  auto context = std::unique_ptr<Context>(new Context(device, id));
  context->arena_ = shm::Arena::Create(id, device.fabric().ArenaBytes());
  if (context->arena_ == nullptr) return nullptr;
  context->memory_regions_ = context->arena_->memory_regions();
  context->mkeys_ = std::make_unique<MkeyTable>(*context);
  if (!context->mkeys_->good()) {
    errno = ENOMEM;
    return nullptr;
  }
  if (context->async_events_.fd() < 0) return nullptr;
  {
    std::lock_guard lock(context->mutex_);
    context->cqs_.resize(1);       // id 0 names none
    context->segments_.resize(1);  // private memory
    context->region_tags_.resize(shm::kMaxMemoryRegions, 0);
    context->next_region_ = 1;  // no key is 0
  }
  context->FillOps();
  context->port_ = device.fabric().Attach(*context);
  return context->port_ == nullptr ? nullptr : context.release();
}

// After the port is destroyed, no peer finds or uses the context.
Context::~Context() {
  port_.reset();
  for (auto& page : srq_pages_) delete page.load(std::memory_order_relaxed);
}

void Context::WaitForCopies() { port_->WaitForCopies(); }

uint32_t Context::AddCq(Cq* cq) {
  std::lock_guard lock(mutex_);
  for (uint32_t id = 1; id < cqs_.size(); ++id) {
    if (cqs_[id] == nullptr) {
      cqs_[id] = cq;
      return id;
    }
  }
  if (cqs_.size() >= kMaxCqs) return 0;
  cqs_.push_back(cq);
  return static_cast<uint32_t>(cqs_.size() - 1);
}

void Context::RemoveCq(uint32_t id) {
  std::lock_guard lock(mutex_);
  cqs_[id] = nullptr;
}

uint32_t Context::TakeSrqId() {
  std::lock_guard lock(mutex_);
  uint32_t id = 0;
  if (!free_srqs_.empty()) {
    id = free_srqs_.back();
    free_srqs_.pop_back();
  } else if (next_srq_ < kMaxSrqs) {
    id = next_srq_++;
  } else {
    return 0;
  }
  std::atomic<SrqPage*>& page = srq_pages_[id / kSrqsPerPage];
  if (page.load(std::memory_order_relaxed) == nullptr) {
    page.store(new SrqPage{}, std::memory_order_release);
  }
  return id;
}

void Context::AddSrq(uint32_t id, Srq* srq) {
  SrqPage& page = *srq_pages_[id / kSrqsPerPage].load(std::memory_order_acquire);
  page[id % kSrqsPerPage].store(srq, std::memory_order_release);
}

void Context::RemoveSrq(uint32_t id) {
  std::lock_guard lock(mutex_);
  SrqPage& page = *srq_pages_[id / kSrqsPerPage].load(std::memory_order_relaxed);
  page[id % kSrqsPerPage].store(nullptr, std::memory_order_release);
  // A poller finds the SRQ through a completion, and uses the SRQ until it releases the lock of its CQ.
  for (Cq* cq : cqs_) {
    if (cq != nullptr) cq->ForgetSrq(id);
  }
  free_srqs_.push_back(id);
}

void Context::CollectNotices() {
  std::lock_guard lock(mutex_);
  for (Cq* cq : cqs_) {
    if (cq != nullptr) cq->CollectOverrun();
  }
  for (uint32_t id = 1; id < next_srq_; ++id) {
    if (Srq* srq = FindSrq(id)) srq->CollectLimit();
  }
}

void Context::AddResponder(uint32_t number, Responder* responder) {
  std::lock_guard lock(mutex_);
  responders_[number] = responder;
}

void Context::RemoveResponder(uint32_t number) {
  std::lock_guard lock(mutex_);
  responders_.erase(number);
}

std::vector<uint32_t> Context::FewTargetsWith(uint32_t number) {
  std::lock_guard lock(mutex_);
  const auto asked = responders_.find(number);
  if (asked == responders_.end()) return {};
  std::vector<uint32_t> numbers;
  const uint32_t first = number - std::min(number, kCloseNumbers);
  for (uint32_t other = first; other <= number + kCloseNumbers; ++other) {
    if (numbers.size() == kFewTargets - 1) break;
    const auto it = responders_.find(other);
    if (other == number || it == responders_.end()) continue;
    // A DCT has no `life`. Other queue pairs have one sender each.
    if (it->second->life() != nullptr || &it->second->cq() != &asked->second->cq()) continue;
    numbers.push_back(other);
  }
  numbers.push_back(number);
  return numbers;
}

uint32_t Context::AddSegmentUse(UniqueFd fd, uint64_t size_bytes, dev_t device, ino_t inode) {
  std::lock_guard lock(mutex_);
  for (uint32_t id = 1; id < segments_.size(); ++id) {
    Segment& segment = segments_[id];
    if (segment.fd && segment.device == device && segment.inode == inode) {
      ++segment.users;
      return id;
    }
  }
  // Ids are used once: a peer may have the old file mapped. When they are used up, memory counts as
  // private.
  if (segments_.size() >= kMaxSegments) return shm::kPrivateSegment;
  segments_.push_back(Segment{
      .fd = std::move(fd), .size_bytes = size_bytes, .device = device, .inode = inode, .users = 1});
  const auto id = static_cast<uint32_t>(segments_.size() - 1);
  arena_->header().segment_count.store(id);
  SOFTDC_KILL_POINT(kSegmentAnnounced);
  return id;
}

void Context::DropSegmentUse(uint32_t segment) {
  if (segment == shm::kPrivateSegment) return;
  std::lock_guard lock(mutex_);
  if (--segments_[segment].users == 0) segments_[segment].fd.Reset();
}

UniqueFd Context::SegmentFd(uint32_t segment, uint64_t* size_bytes) {
  std::lock_guard lock(mutex_);
  if (segment >= segments_.size() || !segments_[segment].fd) return UniqueFd();
  *size_bytes = segments_[segment].size_bytes;
  return UniqueFd(fcntl(segments_[segment].fd.get(), F_DUPFD_CLOEXEC, 0));
}

bool Context::CopySegments(size_t most, std::vector<SegmentCopy>* copies) {
  std::lock_guard lock(mutex_);
  for (uint32_t id = 1; id < segments_.size(); ++id) {
    const Segment& segment = segments_[id];
    if (!segment.fd) continue;
    if (most-- == 0) return false;
    UniqueFd fd(fcntl(segment.fd.get(), F_DUPFD_CLOEXEC, 0));
    if (!fd) return false;
    copies->push_back({.segment = id, .fd = std::move(fd), .size_bytes = segment.size_bytes});
  }
  return true;
}

int Context::TakeMemoryRegion(uint32_t* key) {
  std::lock_guard lock(mutex_);
  const bool fresh = next_region_ < static_cast<int>(shm::kMaxMemoryRegions);
  int index = -1;
  if (free_regions_.size() > kRestingRegions || (!fresh && !free_regions_.empty())) {
    index = free_regions_.front();
    free_regions_.pop_front();
  } else if (fresh) {
    index = next_region_++;
  }
  if (index >= 0) *key = static_cast<uint32_t>(index) << kTagBits | ++region_tags_[index];
  return index;
}

void Context::ReturnMemoryRegion(int index) {
  std::lock_guard lock(mutex_);
  free_regions_.push_back(index);
}

void Context::AddWindow(uint32_t index, uint32_t pd) {
  std::lock_guard lock(mutex_);
  Window& window = windows_[index];
  window.pd = pd;
  window.tags.set(region_tags_[index]);
}

void Context::UseWindowKey(uint32_t index, uint32_t key) {
  std::lock_guard lock(mutex_);
  Window& window = windows_[index];
  window.tags.set(key & kTagMask);
  window.settled = false;
}

bool Context::SettleWindow(uint32_t key) {
  const uint32_t index = key >> kTagBits;
  std::lock_guard lock(mutex_);
  const auto it = windows_.find(index);
  if (it == windows_.end() || it->second.settled ||
      memory_regions_[index].key.load(std::memory_order_acquire) != 0) {
    return true;
  }
  return it->second.settled = !port_->WindowInUse(index);
}

void Context::RemoveWindow(uint32_t index) {
  std::lock_guard lock(mutex_);
  // The next key of this index is one that the window never had, as long as there is one.
  const std::bitset<kTags>& used = windows_[index].tags;
  uint8_t& tag = region_tags_[index];
  for (uint32_t i = 0; i < kTags && used[(tag + 1) & kTagMask]; ++i) ++tag;
  windows_.erase(index);
}

bool Context::IsWindow(uint32_t index, uint32_t pd) {
  std::lock_guard lock(mutex_);
  const auto it = windows_.find(index);
  return it != windows_.end() && it->second.pd == pd;
}

}  // namespace sluice::softdc
