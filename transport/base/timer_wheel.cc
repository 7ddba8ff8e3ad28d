// SPDX-License-Identifier: Apache-2.0
//
// The bits of a tick form groups of six, one group per level. A timer is in the level of the highest group in which its tick differs
// from the current tick. The value of that group in the timer's tick is its slot. So the timers of level 0 fire within the current 64
// ticks. When the first tick of a slot in a higher level is reached, its timers move to the lower levels.
#include "transport/base/timer_wheel.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace sluice::base {
namespace {

constexpr uint64_t kSpanTicks = uint64_t{1} << (TimerWheel::kLevels * TimerWheel::kSlotBits);

void MakeEmpty(TimerLink* list) { list->previous = list->next = list; }
bool IsEmpty(const TimerLink* list) { return list->next == list; }

}  // namespace

TimerWheel::TimerWheel(int64_t now_ns, int64_t tick_ns) : origin_ns_(now_ns), tick_ns_(tick_ns) {
  assert(tick_ns > 0);
}

TimerLink* TimerWheel::Slot(uint16_t bucket) {
  std::unique_ptr<TimerLink[]>& level = levels_[bucket / kSlots];
  if (level == nullptr) [[unlikely]] {
    level = std::make_unique<TimerLink[]>(kSlots);
    for (int slot = 0; slot < kSlots; ++slot) MakeEmpty(&level[slot]);
  }
  return &level[bucket % kSlots];
}

uint64_t TimerWheel::TickAtOrAfter(int64_t time_ns) const {
  if (time_ns <= origin_ns_) return 0;
  const uint64_t elapsed_ns = static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(origin_ns_);
  const uint64_t tick_ns = static_cast<uint64_t>(tick_ns_);
  return elapsed_ns / tick_ns + (elapsed_ns % tick_ns != 0 ? 1 : 0);
}

void TimerWheel::Schedule(Timer* timer, int64_t deadline_ns) {
  Cancel(timer);
  timer->deadline_ns = deadline_ns;
  Insert(timer, floor_tick_);
  ++size_;
}

void TimerWheel::Insert(Timer* timer, uint64_t floor_tick) {
  // The tick is limited to the span of the wheel. A later timer is inserted again when its slot is reached.
  const uint64_t last_tick = now_tick_ | (kSpanTicks - 1);
  timer->tick = std::max(std::min(TickAtOrAfter(timer->deadline_ns), last_tick), floor_tick);
  const uint64_t differing = (timer->tick ^ now_tick_) | (kSlots - 1);
  const int top_bit = static_cast<int>(std::bit_width(differing)) - 1;
  const int level = std::min(top_bit / kSlotBits, kLevels - 1);
  const int slot = static_cast<int>((timer->tick >> (level * kSlotBits)) & (kSlots - 1));
  timer->bucket = static_cast<uint16_t>(level * kSlots + slot);

  TimerLink* list = Slot(timer->bucket);
  timer->previous = list->previous;
  timer->next = list;
  list->previous->next = timer;
  list->previous = timer;
  occupied_[level] |= uint64_t{1} << slot;
}

void TimerWheel::Unlink(Timer* timer) {
  timer->previous->next = timer->next;
  timer->next->previous = timer->previous;
  timer->previous = timer->next = nullptr;
  if (timer->bucket != kDetached && IsEmpty(Slot(timer->bucket))) {
    occupied_[timer->bucket / kSlots] &= ~(uint64_t{1} << (timer->bucket % kSlots));
  }
}

void TimerWheel::Cancel(Timer* timer) {
  if (!timer->armed()) return;
  Unlink(timer);
  --size_;
}

bool TimerWheel::FirstSlot(uint16_t* bucket, uint64_t* start_tick) const {
  for (int level = 0; level < kLevels; ++level) {
    if (occupied_[level] == 0) continue;
    const int shift = level * kSlotBits;
    const int current = static_cast<int>((now_tick_ >> shift) & (kSlots - 1));
    // The search starts at the current slot and wraps around. Only the top level can have timers in slots before the current slot, for its
    // next round. The current slot of a higher level is always empty, because its timers are in lower levels.
    const int ahead = std::countr_zero(std::rotr(occupied_[level], current));
    const int slot = (current + ahead) & (kSlots - 1);
    assert(level == 0 || ahead != 0);
    *bucket = static_cast<uint16_t>(level * kSlots + slot);
    *start_tick = (now_tick_ >> shift << shift) + (static_cast<uint64_t>(ahead) << shift);
    return true;
  }
  return false;
}

int TimerWheel::Advance(int64_t now_ns) {
  if (now_ns < origin_ns_) return 0;
  const uint64_t target_tick =
      static_cast<uint64_t>(now_ns - origin_ns_) / static_cast<uint64_t>(tick_ns_);
  floor_tick_ = std::max(now_tick_, target_tick) + 1;
  int fired = 0;
  uint16_t bucket;
  uint64_t start_tick;
  while (size_ != 0 && FirstSlot(&bucket, &start_tick) && start_tick <= target_tick) {
    now_tick_ = std::max(now_tick_, start_tick);
    TimerLink due;
    TimerLink* list = Slot(bucket);
    due.next = list->next;
    due.previous = list->previous;
    due.next->previous = due.previous->next = &due;
    MakeEmpty(list);
    occupied_[bucket / kSlots] &= ~(uint64_t{1} << (bucket % kSlots));
    for (TimerLink* link = due.next; link != &due; link = link->next) {
      static_cast<Timer*>(link)->bucket = kDetached;
    }
    while (!IsEmpty(&due)) {
      Timer* timer = static_cast<Timer*>(due.next);
      Unlink(timer);
      // The timer is not due yet if only the first tick of its slot is reached, or if its tick was limited to the span of the wheel. The
      // tick of a timer that was armed late is after its deadline, so both are compared.
      if (timer->tick > now_tick_ || TickAtOrAfter(timer->deadline_ns) > now_tick_) {
        Insert(timer, std::max(timer->tick, now_tick_ + 1));
        continue;
      }
      --size_;
      ++fired;
      timer->fire(timer, timer->context);
    }
  }
  now_tick_ = std::max(now_tick_, target_tick);
  return fired;
}

int64_t TimerWheel::NextWakeNs() const {
  uint16_t bucket;
  uint64_t start_tick;
  if (size_ == 0 || !FirstSlot(&bucket, &start_tick)) return -1;
  return origin_ns_ + static_cast<int64_t>(start_tick) * tick_ns_;
}

}  // namespace sluice::base
