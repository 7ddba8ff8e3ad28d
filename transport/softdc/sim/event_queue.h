// SPDX-License-Identifier: Apache-2.0
//
// EventQueue: the virtual clock and its pending events. Events run in order of time. Events of the same time
// run in the order in which they were scheduled, so a run depends only on its inputs.
//
// The heap holds 16-byte keys. The action of an event is in a separate slot: a function, an object and a
// word. The hot path therefore neither allocates nor copies closures. A task (std::function) uses a slot of
// its own table.
//
// Threads       One thread.
// Limits        kMaxEvents pending events. At the limit, ScheduleAt aborts the process, because a simulation
//               that loses an event would give wrong results.
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

  // Runs handler(object, argument) at `when_ns`, or now if that time is past. Returns an id that is never 0.
  uint64_t ScheduleAt(int64_t when_ns, Handler handler, void* object, uint64_t argument);
  uint64_t ScheduleAt(int64_t when_ns, std::function<void()> task);

  // Returns true if the event will not run. Returns false if it ran, is running, or was cancelled before.
  bool Cancel(uint64_t id);

  // Moves the clock to the next event and runs it. Returns false if there is none.
  bool Step() { return StepUntil(INT64_MAX); }
  // Does the same if the event is due by `limit_ns`. Otherwise does nothing and returns false.
  bool StepUntil(int64_t limit_ns);
  // Returns the time of the next event, or INT64_MAX if there is none.
  int64_t NextNs();
  // Moves the clock forward without running events.
  void AdvanceTo(int64_t when_ns) {
    if (when_ns > now_ns_) now_ns_ = when_ns;
  }

 private:
  // An id contains the sequence number in the bits above the slot, so comparing ids compares sequence
  // numbers.
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
