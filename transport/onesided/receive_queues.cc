// SPDX-License-Identifier: Apache-2.0
#include "transport/onesided/receive_queues.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"

namespace sluice::onesided {
namespace {

constexpr int kReceiveBatch = 32;

}  // namespace

ReceiveQueues::ReceiveQueues(device::Device& device, poller::Commands& commands,
                             const ReceiveQueuesOptions& options)
    : device_(device),
      commands_(commands),
      options_(options),
      queue_bytes_(options.depth * receive::ReceiveQueue::StrideBytes(options.buffer_bytes)),
      slots_(options.peers + kMaxRetired + kMaxEnding) {}

// A slot is used again only after the completions of its last queue have been read, so the CQ never holds more than its depth.
absl::StatusOr<std::unique_ptr<ReceiveQueues>> ReceiveQueues::Create(
    device::Device& device, poller::Commands& commands, const ReceiveQueuesOptions& options) {
  std::unique_ptr<ReceiveQueues> queues(new ReceiveQueues(device, commands, options));
  const verbs::VerbsApi& api = device.api();
  const size_t count = queues->slots_.size();
  auto memory =
      memory::Slab::Create(api, device.pd(), count * queues->queue_bytes_, IBV_ACCESS_LOCAL_WRITE);
  if (!memory.ok()) return memory.status();
  queues->memory_ = *std::move(memory);
  const auto depth = static_cast<uint32_t>(count * options.depth);
  auto cq = verbs::CreateCq(api, device.context(), depth, options.channel);
  if (!cq.ok()) return cq.status();
  queues->cq_ = *std::move(cq);
  queues->arrivals_.resize(depth);
  return queues;
}

absl::StatusOr<uint32_t> ReceiveQueues::Make(uint32_t place, std::shared_ptr<memory::Domain> domain,
                                             uint64_t access_key, const verbs::PathOptions& path) {
  const auto free = std::ranges::find(slots_, State::kFree, &Slot::state);
  if (free == slots_.end()) {
    return base::Error(
        absl::StatusCode::kResourceExhausted,
        "all " + std::to_string(slots_.size()) + " receive queues are taken",
        {.layer = "onesided",
         .operation = "create",
         .cause = "the device is still destroying the receive queues of disconnected peers",
         .remedy = "retry soon",
         .retry_safe = true});
  }
  const auto index = static_cast<uint32_t>(free - slots_.begin());
  auto queue = receive::ReceiveQueue::Create(
      device_, cq_.get(),
      {.depth = options_.depth,
       .buffer_bytes = options_.buffer_bytes,
       .tag = index,
       .access_key = access_key,
       .dct = options_.dct,
       .remote_access = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE,
       .target_domain = domain == nullptr ? nullptr : domain->get(),
       .memory = memory_.data() + index * queue_bytes_,
       .lkey = memory_.lkey(),
       .path = path});
  if (!queue.ok()) return queue.status();
  *free = {State::kUsed, place, std::move(domain), *std::move(queue)};
  return index;
}

std::optional<uint32_t> ReceiveQueues::PlaceOf(const void* dct) const {
  if (dct == nullptr) return std::nullopt;
  for (const Slot& slot : slots_) {
    if (slot.state == State::kUsed && slot.queue->target() == dct) return slot.place;
  }
  return std::nullopt;
}

void ReceiveQueues::Retire(uint32_t index) {
  if (slots_[index].domain != nullptr) return Destroy(index);
  slots_[index].state = State::kRetired;
  retired_.push_back(index);
  if (retired_.size() <= kMaxRetired) return;
  const uint32_t eldest = retired_.front();
  retired_.pop_front();
  Destroy(eldest);
}

void ReceiveQueues::Destroy(uint32_t index) {
  Slot& slot = slots_[index];
  slot.state = State::kEnding;
  commands_.Submit(
      [queue = std::move(slot.queue), domain = std::move(slot.domain)]() mutable {
        queue.reset();
        domain.reset();
      },
      [this, index] {
        slots_[index].state = State::kEnded;
        ++ended_;
      });
}

std::span<const ibv_wc> ReceiveQueues::Look() {
  size_t count = 0;
  int got = 0;
  do {
    const auto room = static_cast<int>(std::min<size_t>(arrivals_.size() - count, kReceiveBatch));
    got = ibv_poll_cq(cq_.get(), room, arrivals_.data() + count);
    unreadable_ = got < 0;
    count += static_cast<size_t>(std::max(got, 0));
  } while (got == kReceiveBatch && count < arrivals_.size());
  return {arrivals_.data(), count};
}

std::optional<uint32_t> ReceiveQueues::PlaceOf(const ibv_wc& completion) const {
  const Slot& slot = SlotOf(completion);
  if (slot.state != State::kUsed) return std::nullopt;
  return slot.place;
}

std::span<const std::byte> ReceiveQueues::BytesOf(const ibv_wc& completion) const {
  const auto index = static_cast<uint32_t>(completion.wr_id);
  return {SlotOf(completion).queue->buffer(index), completion.byte_len};
}

// Posts the buffer at once, because a peer has no spare buffers.
void ReceiveQueues::Recycle(const ibv_wc& completion) {
  const Slot& slot = SlotOf(completion);
  if (slot.state != State::kUsed) return;
  slot.queue->Recycle(static_cast<uint32_t>(completion.wr_id));
  slot.queue->Refill();
}

void ReceiveQueues::FreeEnded() {
  if (ended_ == 0) return;
  ended_ = 0;
  for (Slot& slot : slots_) {
    if (slot.state == State::kEnded) slot.state = State::kFree;
  }
}

}  // namespace sluice::onesided
