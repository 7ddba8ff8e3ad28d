// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/event_queue.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

namespace sluice::softdc::sim {

uint64_t EventQueue::ScheduleAt(int64_t when_ns, Handler handler, void* object, uint64_t argument) {
  uint32_t slot;
  if (!free_slots_.empty()) {
    slot = free_slots_.back();
    free_slots_.pop_back();
  } else {
    if (slots_.size() == kMaxEvents) {
      std::fputs("softdc sim: more than 2^24 events are pending\n", stderr);
      std::abort();
    }
    slot = static_cast<uint32_t>(slots_.size());
    slots_.emplace_back();
  }
  const uint64_t id = next_sequence_++ << kSlotBits | slot;
  slots_[slot] = {.handler = handler, .object = object, .argument = argument, .id = id};
  heap_.push_back({.when_ns = when_ns < now_ns_ ? now_ns_ : when_ns, .id = id});
  SiftUp(heap_.size() - 1);
  ++pending_;
  return id;
}

uint64_t EventQueue::ScheduleAt(int64_t when_ns, std::function<void()> task) {
  uint32_t index;
  if (!free_tasks_.empty()) {
    index = free_tasks_.back();
    free_tasks_.pop_back();
    tasks_[index] = std::move(task);
  } else {
    index = static_cast<uint32_t>(tasks_.size());
    tasks_.push_back(std::move(task));
  }
  return ScheduleAt(when_ns, &RunTask, this, index);
}

void EventQueue::RunTask(void* queue, uint64_t task) {
  auto* self = static_cast<EventQueue*>(queue);
  // Moves the task out first, because it may schedule others, which may move the vector.
  const std::function<void()> run = std::exchange(self->tasks_[task], nullptr);
  self->free_tasks_.push_back(static_cast<uint32_t>(task));
  run();
}

bool EventQueue::Cancel(uint64_t id) {
  const uint32_t slot = SlotOf(id);
  if (slot >= slots_.size() || slots_[slot].id != id || slots_[slot].handler == nullptr) {
    return false;
  }
  if (slots_[slot].handler == &RunTask) {
    const auto task = static_cast<uint32_t>(slots_[slot].argument);
    tasks_[task] = nullptr;
    free_tasks_.push_back(task);
  }
  slots_[slot].handler = nullptr;  // the heap drops the key when it is at the top
  --pending_;
  return true;
}

void EventQueue::SiftUp(size_t index) {
  const Key key = heap_[index];
  while (index != 0) {
    const size_t parent = (index - 1) / kArity;
    if (!(key < heap_[parent])) break;
    heap_[index] = heap_[parent];
    index = parent;
  }
  heap_[index] = key;
}

void EventQueue::PopTop() {
  const Key last = heap_.back();
  heap_.pop_back();
  const size_t size = heap_.size();
  if (size == 0) return;
  size_t index = 0;
  for (;;) {
    const size_t first = index * kArity + 1;
    if (first >= size) break;
    const size_t end = first + kArity < size ? first + kArity : size;
    size_t least = first;
    for (size_t child = first + 1; child < end; ++child) {
      if (heap_[child] < heap_[least]) least = child;
    }
    if (!(heap_[least] < last)) break;
    heap_[index] = heap_[least];
    index = least;
  }
  heap_[index] = last;
}

void EventQueue::DropCancelled() {
  while (!heap_.empty() && slots_[SlotOf(heap_.front().id)].handler == nullptr) {
    FreeSlot(SlotOf(heap_.front().id));
    PopTop();
  }
}

int64_t EventQueue::NextNs() {
  DropCancelled();
  return heap_.empty() ? INT64_MAX : heap_.front().when_ns;
}

bool EventQueue::StepUntil(int64_t limit_ns) {
  DropCancelled();
  if (heap_.empty() || heap_.front().when_ns > limit_ns) return false;
  const Key top = heap_.front();
  const uint32_t index = SlotOf(top.id);
  const Slot slot = slots_[index];
  FreeSlot(index);
  PopTop();
  --pending_;
  ++executed_;
  now_ns_ = top.when_ns;
  slot.handler(slot.object, slot.argument);
  return true;
}

}  // namespace sluice::softdc::sim
