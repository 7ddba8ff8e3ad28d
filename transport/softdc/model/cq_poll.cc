// SPDX-License-Identifier: Apache-2.0
//
// Polling: first the private ring, then the rings of the senders in turn, then flushed receives.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "transport/softdc/model/context.h"
#include "transport/softdc/model/cq.h"
#include "transport/softdc/model/srq.h"

namespace sluice::softdc {

[[gnu::always_inline]] inline bool Cq::Quiet() const {
  if (local_head_ != local_tail_ || aside_ || dead_rings_ != 0) return false;
  for (const auto& ring : rings_) {
    if (!ring->consumer.Empty()) return false;
  }
  return true;
}

[[gnu::always_inline]] inline int Cq::PollLocked(int max, ibv_wc* wc, int64_t* timestamps_ns) {
  const auto times = [&](int from) {
    return timestamps_ns == nullptr ? nullptr : timestamps_ns + from;
  };
  int count = 0;
  if (local_head_ != local_tail_) count = PollLocal(max, wc, timestamps_ns);
  const size_t rings = rings_.size();
  for (size_t i = 0; i < rings && count < max; ++i) {
    const size_t index = next_ring_ + i < rings ? next_ring_ + i : next_ring_ + i - rings;
    Ring& ring = *rings_[index];
    if (!ring.consumer.Empty()) {
      count += PollRing(ring, max - count, wc + count, times(count));
    }
  }
  if (++next_ring_ >= rings) next_ring_ = 0;
  // Flushed receives come after all completions of senders, also after a completion that is held back.
  if (aside_ && !(held_back_ && HasInvalidation())) {
    count += PollFlushed(max - count, wc + count, times(count));
    aside_ = !flushed_.empty();
  }
  if (dead_rings_ != 0) RemoveEmptyDeadRings();
  return count;
}

int Cq::Poll(int max, ibv_wc* wc) {
  lock_.Lock();
  if (!Quiet()) [[unlikely]]
    return PollBusy(max, wc);
  context_.mkeys().Polled(id_);
  lock_.Unlock();
  return 0;
}

// A separate function, so that a poll of a quiet queue saves no registers.
int Cq::PollBusy(int max, ibv_wc* wc) {
  const int count = PollLocked(max, wc, nullptr);
  context_.mkeys().Polled(id_);
  lock_.Unlock();
  return count;
}

int Cq::PollStamped(int max, ibv_wc* wc, int64_t* timestamps_ns) {
  SpinLockHolder hold(lock_);
  const int count = PollLocked(max, wc, timestamps_ns);
  context_.mkeys().Polled(id_);
  return count;
}

int Cq::PollLocal(int max, ibv_wc* wc, int64_t* timestamps_ns) {
  int count = 0;
  std::atomic<uint64_t>* last = nullptr;
  uint64_t sequence = 0;
  for (; count < max && local_head_ != local_tail_; ++local_head_) {
    const Local& local = local_[local_head_ & (local_.size() - 1)];
    wc[count] = local.wc;
    if (timestamps_ns != nullptr) timestamps_ns[count] = local.timestamp_ns;
    if (local.released != nullptr) {
      if (last != nullptr && last != local.released) {
        last->store(sequence + 1, std::memory_order_release);
      }
      last = local.released;
      sequence = local.sequence;
    } else if (local.srq_id != 0) {
      Srq* srq = context_.FindSrq(local.srq_id);
      const auto wr_id = srq == nullptr ? std::nullopt : srq->Complete(local.wqe_index);
      if (!wr_id) continue;
      wc[count].wr_id = *wr_id;
    }
    ++count;
  }
  if (last != nullptr) last->store(sequence + 1, std::memory_order_release);
  return count;
}

int Cq::PollFlushed(int max, ibv_wc* wc, int64_t* timestamps_ns) {
  int count = 0;
  for (; count < max && !flushed_.empty(); ++count) {
    wc[count] = flushed_.front().wc;
    if (timestamps_ns != nullptr) timestamps_ns[count] = flushed_.front().timestamp_ns;
    flushed_.pop_front();
  }
  return count;
}

// From its second word on, a CQE has the layout of an ibv_wc.
static_assert(offsetof(ibv_wc, status) == offsetof(shm::Cqe, status) &&
              offsetof(ibv_wc, opcode) == offsetof(shm::Cqe, opcode) &&
              offsetof(ibv_wc, vendor_err) == offsetof(shm::Cqe, vendor_err) &&
              offsetof(ibv_wc, byte_len) == offsetof(shm::Cqe, byte_len) &&
              offsetof(ibv_wc, imm_data) == offsetof(shm::Cqe, imm_data) &&
              offsetof(ibv_wc, qp_num) == offsetof(shm::Cqe, qp_num) &&
              offsetof(ibv_wc, src_qp) == offsetof(shm::Cqe, src_qp) &&
              offsetof(ibv_wc, wc_flags) == offsetof(shm::Cqe, wc_flags) &&
              offsetof(ibv_wc, pkey_index) == offsetof(shm::Cqe, pkey_index) &&
              offsetof(ibv_wc, slid) == offsetof(shm::Cqe, slid) &&
              offsetof(ibv_wc, sl) == offsetof(shm::Cqe, sl) &&
              offsetof(ibv_wc, dlid_path_bits) == offsetof(shm::Cqe, dlid_path_bits) &&
              sizeof(ibv_wc) == offsetof(shm::Cqe, timestamp_ns));

namespace {
constexpr size_t kFlagsWord = offsetof(shm::Cqe, flags) / sizeof(uint64_t);
constexpr int kFlagsShift = 8 * (offsetof(shm::Cqe, flags) % sizeof(uint64_t));
constexpr uint64_t kUnused = uint64_t{shm::kCqeUnused} << kFlagsShift;
constexpr uint64_t kInvalidates = uint64_t{shm::kCqeInvalidates} << kFlagsShift;
static_assert(kFlagsWord == 5);

template <size_t kWord>
void PutWord(ibv_wc* wc, uint64_t word) {
  std::memcpy(reinterpret_cast<std::byte*>(wc) + kWord * sizeof(word), &word, sizeof(word));
}
}  // namespace

// A message that invalidated a window is held back while a copy through the window is in progress. The program may use the memory as soon
// as it polls the message. A program that sleeps is woken at once, until the copy has ended.
[[gnu::noinline]] bool Cq::IsHeldBack(uint32_t key) {
  if (!context_.WindowInUse(key)) return false;
  held_back_ = true;
  Wake();
  return true;
}

bool Cq::HasInvalidation() const {
  return std::any_of(rings_.begin(), rings_.end(), [](const auto& ring) {
    const shm::internal::CqeEntry* entry = ring->consumer.Peek();
    return entry != nullptr && (entry->Word(kFlagsWord) & kInvalidates) != 0;
  });
}

void Cq::Wake() {
  if (base.channel != nullptr && armed_->TryTake(shm::ArmedWord::kOwnerLink, /*solicited=*/true)) {
    events_.Fire();
  }
}

int Cq::PollRing(Ring& ring, int max, ibv_wc* wc, int64_t* timestamps_ns) {
  constexpr size_t kImmediateWord = offsetof(shm::Cqe, imm_data) / sizeof(uint64_t);
  static_assert(offsetof(shm::Cqe, imm_data) % sizeof(uint64_t) == 0);
  int count = 0;
  // Most CQEs of a ring belong to one SRQ, which is found and locked once for all of them. A CQE that is not for the user is overwritten by
  // the next.
  Srq* srq = nullptr;
  uint64_t srq_id = 0;  // no SRQ
  while (count < max) {
    const shm::internal::CqeEntry* entry = ring.consumer.Peek();
    if (entry == nullptr) break;
    const uint64_t wqe = entry->Word(0);
    const uint64_t last = entry->Word(5);
    const auto wqe_index = static_cast<uint32_t>(wqe);
    if ((last & (kUnused | kInvalidates)) != 0) [[unlikely]] {
      if (srq != nullptr) srq->lock().Unlock();
      srq = nullptr;
      srq_id = 0;
      if ((last & kInvalidates) != 0) {
        if (IsHeldBack(static_cast<uint32_t>(entry->Word(kImmediateWord)))) break;
        // From now on it is an ordinary CQE.
        const_cast<shm::internal::CqeEntry*>(entry)->words[5].store(last & ~kInvalidates,
                                                                    std::memory_order_relaxed);
      } else {
        ring.consumer.Take();
        if (Srq* owner = context_.FindSrq(static_cast<uint32_t>(wqe >> 32))) {
          if (const auto flushed = owner->Return(wqe_index)) AppendFlushed(*flushed);
        }
      }
      continue;
    }
    PutWord<1>(&wc[count], entry->Word(1));
    PutWord<2>(&wc[count], entry->Word(2));
    PutWord<3>(&wc[count], entry->Word(3));
    PutWord<4>(&wc[count], entry->Word(4));
    PutWord<5>(&wc[count], last);
    static_assert(sizeof(ibv_wc) == 6 * sizeof(uint64_t));
    if (timestamps_ns != nullptr) {
      timestamps_ns[count] = static_cast<int64_t>(entry->Word(shm::internal::kTimestampWord));
    }
    ring.consumer.Take();
    if (wqe >> 32 != srq_id) {
      if (srq != nullptr) srq->lock().Unlock();
      srq_id = wqe >> 32;
      srq = context_.FindSrq(static_cast<uint32_t>(srq_id));
      if (srq != nullptr) srq->lock().Lock();
    }
    if (srq == nullptr) continue;
    const std::optional<uint64_t> wr_id = srq->owner().Complete(wqe_index);
    if (!wr_id) continue;
    wc[count++].wr_id = *wr_id;
  }
  if (srq != nullptr) srq->lock().Unlock();
  return count;
}

}  // namespace sluice::softdc
