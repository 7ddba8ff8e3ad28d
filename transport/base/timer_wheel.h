// SPDX-License-Identifier: Apache-2.0
//
// TimerWheel: holds up to hundreds of thousands of timers.
//
// Purpose       A hierarchical wheel: six levels of 64 slots. Scheduling and cancelling are O(1). A timer moves down at most five
//               times before it fires.
// Cost          1 KiB for each level that has held a timer: an unused wheel is small. After that no allocation.
// Ownership     The wheel owns nothing. A Timer is a member of its owner's object. Cancel it, or let it fire, before the object ends.
// Threads       One.
// Precision     A timer never fires early. Its deadline is rounded up to a tick. It fires at the first Advance() at or after that tick.
#ifndef SLUICE_TRANSPORT_BASE_TIMER_WHEEL_H_
#define SLUICE_TRANSPORT_BASE_TIMER_WHEEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace sluice::base {

struct TimerLink {
  TimerLink* previous = nullptr;
  TimerLink* next = nullptr;
};

struct Timer : TimerLink {
  using Callback = void (*)(Timer* timer, void* context);

  Timer() = default;
  Timer(Callback on_fire, void* on_fire_context) : fire(on_fire), context(on_fire_context) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  bool armed() const { return next != nullptr; }

  Callback fire = nullptr;  // may schedule or cancel any timer, including this timer
  void* context = nullptr;
  int64_t deadline_ns = 0;
  uint64_t tick = 0;    // used by the wheel only
  uint16_t bucket = 0;  // used by the wheel only
};

class TimerWheel {
 public:
  static constexpr int kLevels = 6;
  static constexpr int kSlotBits = 6;
  static constexpr int kSlots = 1 << kSlotBits;
  static constexpr int64_t kDefaultTickNs = int64_t{1} << 14;  // 16 µs; the wheel spans 13 days

  explicit TimerWheel(int64_t now_ns, int64_t tick_ns = kDefaultTickNs);
  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Arms the timer, or changes its deadline. If the deadline has passed, the timer fires at the first Advance() in a later tick. A
  // deadline beyond the span of the wheel is also met.
  void Schedule(Timer* timer, int64_t deadline_ns);
  // Disarms the timer. Does nothing if it is not armed.
  void Cancel(Timer* timer);

  // Fires the due timers in the order of ticks and returns their number. If a callback schedules a timer for a time that has passed,
  // that timer fires at a later call. So a callback that always arms its timer again cannot block the caller without limit.
  int Advance(int64_t now_ns);

  // Returns a time before which no timer fires, or -1 if no timer is armed. If the first deadline is far away, the time may be earlier
  // than that deadline. The caller then calls Advance() and this function again, at most kLevels - 1 times per timer.
  int64_t NextWakeNs() const;

  size_t size() const { return size_; }

 private:
  static constexpr uint16_t kDetached = 0xffff;

  uint64_t TickAtOrAfter(int64_t time_ns) const;
  void Insert(Timer* timer, uint64_t floor_tick);
  void Unlink(Timer* timer);
  TimerLink* Slot(uint16_t bucket);
  // Finds the earliest non-empty slot: its bucket and its first tick. Returns false if all slots are empty.
  bool FirstSlot(uint16_t* bucket, uint64_t* start_tick) const;

  const int64_t origin_ns_;
  const int64_t tick_ns_;
  uint64_t now_tick_ = 0;    // all timers due at or before this tick have fired
  uint64_t floor_tick_ = 1;  // earliest tick at which a new timer may fire
  size_t size_ = 0;
  std::array<uint64_t, kLevels> occupied_{};  // one bit per slot
  // Slots of a level: circular lists, the slot is the sentinel. Null: the level has held no timer.
  std::array<std::unique_ptr<TimerLink[]>, kLevels> levels_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_TIMER_WHEEL_H_
