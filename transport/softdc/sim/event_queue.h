// SPDX-License-Identifier: Apache-2.0
//
// EventQueue: the virtual clock and what is due on it. Events run in order of time, and those of
// one time in the order in which they were scheduled, so a run depends on nothing but its inputs.
//
// The heap holds 16-byte keys; the action of an event is in a slot beside it: a function, an object
// and a word, so that the hot path neither allocates nor copies closures. Tasks of others
// (std::function) take the same way through a slot of their own.
//
// Threads       One thread. Bound: kMaxEvents pending; Schedule beyond that ends the process, since a simulation that loses an event
//               would lie.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_QUEUE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace sluice::softdc::sim {

class EventQueue {
 public:
  using Handler = void (*)(void* object, uint64_t argument);
  static constexpr int kSlotBits = 24;
  static constexpr size_t kMaxEvents = size_t{1} << kSlotBits;

  explicit EventQueue(int64_t start_ns) : now_ns_(start_ns) {}
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  int64_t now_ns() const { return now_ns_; }
  uint64_t executed() const { return executed_; }
  size_t pending() const { return pending_; }

  // Runs handler(object, argument) at `when_ns`, or now if that is past. The id is never 0.
  uint64_t ScheduleAt(int64_t when_ns, Handler handler, void* object, uint64_t argument);
  uint64_t ScheduleAt(int64_t when_ns, std::function<void()> task);

  // True: the event will not run. False: it ran, is running, or was cancelled before.
  bool Cancel(uint64_t id);

  // Runs the next event, and moves the clock to it. False: there is none.
  bool Step() { return StepUntil(INT64_MAX); }
  // The same, but only for an event due by `limit_ns`; otherwise nothing happens.
  bool StepUntil(int64_t limit_ns);
  // When the next event is due; INT64_MAX: there is none.
  int64_t NextNs();
  // Moves the clock forward without running anything.
  void AdvanceTo(int64_t when_ns) {
    if (when_ns > now_ns_) now_ns_ = when_ns;
  }

 private:
  // Ids carry the sequence number above the slot, so comparing ids compares sequence numbers.
  struct Key {
    int64_t when_ns;
    uint64_t id;
    bool operator<(const Key& other) const {
      return when_ns != other.when_ns ? when_ns < other.when_ns : id < other.id;
    }
  };
  struct Slot {
    Handler handler = nullptr;  // null: cancelled, or free
    void* object = nullptr;
    uint64_t argument = 0;
    uint64_t id = 0;
  };
  static constexpr size_t kArity = 4;

  static void RunTask(void* queue, uint64_t task);
  uint32_t SlotOf(uint64_t id) const { return id & (kMaxEvents - 1); }
  void FreeSlot(uint32_t slot) {
    slots_[slot].handler = nullptr;
    slots_[slot].id = 0;
    free_slots_.push_back(slot);
  }
  void SiftUp(size_t index);
  void PopTop();
  void DropCancelled();

  int64_t now_ns_;
  uint64_t next_sequence_ = 1;
  uint64_t executed_ = 0;
  size_t pending_ = 0;  // in the heap and not cancelled
  std::vector<Key> heap_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<std::function<void()>> tasks_;
  std::vector<uint32_t> free_tasks_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_EVENT_QUEUE_H_
