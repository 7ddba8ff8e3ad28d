// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/model/context.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/dci.h"
#include "transport/softdc/model/inbound_links.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/outbound_links.h"

namespace sluice::softdc {
namespace {

constexpr int kCompletionVectors = 1;

int PollCq(ibv_cq* cq, int max, ibv_wc* wc) { return Cq::From(cq)->Poll(max, wc); }

int RequestNotifyCq(ibv_cq* cq, int solicited_only) {
  return Cq::From(cq)->RequestNotify(solicited_only != 0);
}

int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  return Srq::From(srq)->Post(wr, bad_wr);
}

// There is no way to give a DC address to ibv_post_send, and neither a DCI nor a DCT has a receive
// queue.
int PostSend(ibv_qp*, ibv_send_wr* wr, ibv_send_wr** bad_wr) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return EINVAL;
}

int PostRecv(ibv_qp*, ibv_recv_wr* wr, ibv_recv_wr** bad_wr) {
  if (bad_wr != nullptr) *bad_wr = wr;
  return EINVAL;
}

}  // namespace

Context* Context::From(ibv_context* context) {
  auto* verbs = reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) -
                                                 offsetof(verbs_context, context));
  return reinterpret_cast<Shell*>(verbs)->self;
}

Context::Context(uint64_t id) : id_(id) {}

Context* Context::Open(ibv_device* device) {
  uint64_t id = 0;
  if (getrandom(&id, sizeof(id), 0) != sizeof(id)) return nullptr;
  auto context = std::unique_ptr<Context>(new Context(id));
  context->arena_ = shm::Arena::Create(id);
  if (context->arena_ == nullptr) return nullptr;
  context->memory_regions_ = context->arena_->memory_regions();
  context->async_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!context->async_fd_) return nullptr;
  {
    std::lock_guard lock(context->mutex_);
    context->cqs_.resize(1);       // id 0 names none
    context->segments_.resize(1);  // private memory
    context->region_tags_.resize(shm::kMaxMemoryRegions, 0);
    context->next_region_ = 1;  // no key is 0
  }
  Context* raw = context.get();
  context->outbound_ = std::make_unique<OutboundLinks>(id, [raw] { raw->KickWaiting(); });
  context->inbound_ = std::make_unique<InboundLinks>(*raw);
  const auto on_block = [raw](int fd) { raw->inbound_->Serve(fd); };
  const auto off_block = [raw](int fd) { raw->inbound_->StopServing(fd); };
  context->numbers_ = std::make_unique<NumberSpace>(on_block, off_block);
  context->reserved_numbers_ = std::make_unique<NumberSpace>(on_block, off_block);
  context->FillOps(device);
  return context.release();
}

Context::~Context() {
  // Numbers first: nobody new finds us. Then the links, in and out, with their callbacks.
  reserved_numbers_.reset();
  numbers_.reset();
  inbound_.reset();
  outbound_.reset();
}

void Context::FillOps(ibv_device* device) {
  shell_.self = this;
  verbs_context& verbs = shell_.verbs;
  verbs.sz = sizeof(verbs_context);
  ibv_context& context = verbs.context;
  context.device = device;
  context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context.cmd_fd = -1;
  context.async_fd = async_fd_.get();
  context.num_comp_vectors = kCompletionVectors;
  context.ops.poll_cq = &PollCq;
  context.ops.req_notify_cq = &RequestNotifyCq;
  context.ops.post_srq_recv = &PostSrqRecv;
  context.ops.post_send = &PostSend;
  context.ops.post_recv = &PostRecv;
}

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

uint32_t Context::AddSrq(Srq* srq) {
  std::lock_guard lock(mutex_);
  for (uint32_t id = 1; id < kMaxSrqs; ++id) {
    if (srqs_[id].load(std::memory_order_relaxed) == nullptr) {
      srqs_[id].store(srq, std::memory_order_release);
      return id;
    }
  }
  return 0;
}

void Context::RemoveSrq(uint32_t id) {
  std::lock_guard lock(mutex_);
  srqs_[id].store(nullptr, std::memory_order_release);
}

void Context::AddDct(uint32_t qp_number, Dct* dct) {
  std::lock_guard lock(mutex_);
  dcts_[qp_number] = dct;
}

void Context::RemoveDct(uint32_t qp_number) {
  std::lock_guard lock(mutex_);
  dcts_.erase(qp_number);
}

void Context::AddWaiting(const std::shared_ptr<Continuation>& continuation) {
  std::lock_guard lock(waiting_mutex_);
  waiting_.push_back(continuation);
}

void Context::KickWaiting() {
  std::vector<std::shared_ptr<Continuation>> waiting;
  {
    std::lock_guard lock(waiting_mutex_);
    waiting.swap(waiting_);
  }
  for (const auto& continuation : waiting) {
    std::lock_guard lock(continuation->mutex);
    if (continuation->dci != nullptr) continuation->dci->Continue();
  }
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

int Context::TakeMemoryRegion(uint32_t* key) {
  std::lock_guard lock(mutex_);
  int index = -1;
  if (!free_regions_.empty()) {
    index = free_regions_.back();
    free_regions_.pop_back();
  } else if (next_region_ < static_cast<int>(shm::kMaxMemoryRegions)) {
    index = next_region_++;
  }
  if (index >= 0) *key = static_cast<uint32_t>(index) << 8 | ++region_tags_[index];
  return index;
}

void Context::ReturnMemoryRegion(int index) {
  std::lock_guard lock(mutex_);
  free_regions_.push_back(index);
}

void Context::PostAsyncEvent(const ibv_async_event& event) {
  {
    std::lock_guard lock(mutex_);
    async_events_.push_back(event);
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(async_fd_.get(), &one, sizeof(one));
}

int Context::GetAsyncEvent(ibv_async_event* event) {
  uint64_t count = 0;
  if (read(async_fd_.get(), &count, sizeof(count)) != sizeof(count)) return -1;
  std::lock_guard lock(mutex_);
  if (async_events_.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = async_events_.front();
  async_events_.pop_front();
  return 0;
}

}  // namespace sluice::softdc
