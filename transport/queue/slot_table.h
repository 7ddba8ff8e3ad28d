// SPDX-License-Identifier: Apache-2.0
//
// SlotTable: a slot for each send buffer, and some without a buffer for pieces of large messages. A wr_id names a slot and its
// generation. Stream, DCI, peer and operation come from the slot. A late completion never touches a slot that was reused.
//
// Cells         Slots of send rings are neither taken nor returned: the owner of the ring decides when a slot is used again. One
//               request may carry the messages of several cells: its slot is that of the first.
// Ownership     The endpoint, with the registered memory behind it.
// Threads       The polling thread.
// Memory        A slot is written when it is first taken, a cell when its ring is first opened. Until then it is zero, and takes no memory.
// Limits        Fixed at the start: `data` slots for messages, `control` slots for grants and goodbyes, `bulk` slots for pieces,
//               so that no kind can starve the others. Take() returns kNoSlot if all slots of a kind are in use.
#ifndef SLUICE_TRANSPORT_QUEUE_SLOT_TABLE_H_
#define SLUICE_TRANSPORT_QUEUE_SLOT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "transport/base/zeroed_array.h"

namespace sluice::queue {

inline constexpr uint32_t kNoSlot = 0xffffffff;

struct Target;

enum class SlotUse : uint8_t {
  kFree,
  kReserved,  // its buffer is being written
  kPending,   // waits for a stream or for room in a send queue
  kPosted,
  kHeld,  // complete or not posted, and not released by its owner, which may send it again
};

// Operation of a request. `kSend` uses a receive buffer of the peer. `kWrite` writes into memory that the peer has granted.
// `kWriteAnnounced` does the same with a completion at the peer. `kRead` reads from such memory.
enum class Operation : uint8_t { kSend, kWrite, kWriteAnnounced, kRead };

// Local part and remote address of a write or a read.
struct RemoteWrite {
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;
  uint32_t offset_bytes = 0;  // from the slot's first byte
  uint32_t length_bytes = 0;
};

struct Slot {
  std::byte* data = nullptr;  // constant; for a bulk slot or a cell, set by its user
  Target* target = nullptr;
  uint32_t generation = 1;
  uint32_t length_bytes = 0;
  uint32_t next = kNoSlot;  // in a list of pending or free slots
  uint16_t dci = 0;         // while posted
  uint16_t stream = 0;
  uint16_t messages = 1;  // messages in its request; more than 1 only for a cell
  SlotUse use = SlotUse::kFree;
  bool control = false;    // constant: goes to the peer's control DCT
  bool bulk = false;       // constant: a piece of memory outside the table
  bool cell = false;       // constant: of a send ring
  bool refused = false;    // the request of a bulk slot was invalid: a retry would fail too
  bool notify = false;     // its completion is signalled and reported
  bool signal = false;     // its completion is signalled: maybe no later completion covers it
  bool signalled = false;  // while posted: its completion is signalled
  bool in_order = false;   // a control slot that must not pass earlier data (RcQueues)
  // The owner no longer needs the slot: it is free as soon as it is complete. Always set for control slots, bulk slots and cells.
  bool released = false;
  Operation operation = Operation::kSend;
  RemoteWrite write;  // not for kSend
  uint32_t lkey = 0;  // of a bulk slot's memory
};

class SlotTable {
 public:
  SlotTable(std::byte* data_area, uint32_t data_slots, size_t data_stride_bytes,
            std::byte* control_area, uint32_t control_slots, size_t control_stride_bytes,
            uint32_t bulk_slots = 0, uint32_t cells = 0);

  uint32_t Take(bool control) { return control ? TakeControlFor(0) : TakeFrom(kData); }
  // Takes a control slot and notes whose it is. `owner`: 0 if it counts for nobody.
  uint32_t TakeControlFor(uint64_t owner);
  // Returns the number of control slots that the owner holds. Looks at each control slot, so ask only when many are in use.
  uint32_t ControlOf(uint64_t owner) const;
  uint32_t TakeBulk() { return TakeFrom(kBulk); }
  // Makes `count` cells usable, beginning with `first`. Call before the first use of one; later calls have no effect.
  void BeginCells(uint32_t first, uint32_t count);

  void Give(uint32_t index) {
    Slot& slot = slots_[index];
    slot.use = SlotUse::kFree;
    slot.target = nullptr;
    slot.notify = slot.signal = slot.in_order = false;
    slot.released = slot.control | slot.bulk | slot.cell;
    slot.operation = Operation::kSend;
    slot.refused = false;
    NextGeneration(slot);
    if (slot.cell) return;
    const Class its = ClassOf(slot);
    slot.next = free_[its];
    free_[its] = index;
    ++free_count_[its];
  }

  // Ends the request of a slot. Frees the slot if it is released, and holds it otherwise.
  void Complete(uint32_t index) {
    Slot& slot = slots_[index];
    if (slot.released) return Give(index);
    slot.use = SlotUse::kHeld;
    slot.target = nullptr;
    NextGeneration(slot);
  }

  Slot& operator[](uint32_t index) { return slots_[index]; }
  const Slot& operator[](uint32_t index) const { return slots_[index]; }
  uint64_t WrId(uint32_t index) const { return (uint64_t{slots_[index].generation} << 32) | index; }
  // Returns the slot of a completion. Returns nullopt if there is no such slot, its generation is another, or it is not posted.
  std::optional<uint32_t> Posted(uint64_t wr_id) const {
    const uint32_t index = static_cast<uint32_t>(wr_id);
    if (index >= size_) return std::nullopt;
    const Slot& slot = slots_[index];
    if (slot.generation != static_cast<uint32_t>(wr_id >> 32)) return std::nullopt;
    if (slot.use != SlotUse::kPosted) return std::nullopt;
    return index;
  }

  // Returns the memory of the data slots.
  std::byte* data_area() const { return data_area_; }
  // Returns the maximum size of a message in a slot.
  uint32_t max_bytes() const { return max_bytes_; }
  uint32_t free_data() const { return free_count_[kData]; }
  uint32_t free_control() const { return free_count_[kControl]; }
  uint32_t control_slots() const { return first_cell_ - first_control_; }
  uint32_t free_bulk() const { return free_count_[kBulk]; }
  // Returns the index of the first cell. Cells are between control and bulk slots.
  uint32_t first_cell() const { return first_cell_; }
  bool is_cell(uint32_t index) const { return index >= first_cell_ && index < first_bulk_; }
  // Returns whether a request with the message of the cell is pending or posted.
  bool IsUnderWay(uint32_t index) const {
    return slots_[index].use == SlotUse::kPosted || slots_[index].use == SlotUse::kPending;
  }
  // Returns the index of the first bulk slot. All later slots are bulk slots as well.
  uint32_t first_bulk() const { return first_bulk_; }
  uint32_t size() const { return size_; }

 private:
  enum Class : uint8_t { kData, kControl, kBulk, kClasses };

  static Class ClassOf(const Slot& slot) {
    if (slot.bulk) return kBulk;
    return slot.control ? kControl : kData;
  }
  uint32_t TakeFrom(Class from) {
    if (free_count_[from] == 0) return kNoSlot;
    const uint32_t index = free_[from] != kNoSlot ? free_[from] : BeginNext(from);
    Slot& slot = slots_[index];
    free_[from] = slot.next;
    --free_count_[from];
    slot.use = SlotUse::kReserved;
    slot.next = kNoSlot;
    return index;
  }

  // Writes the next slot that was never taken, and returns its index. Call only if there is one.
  uint32_t BeginNext(Class from);
  void Begin(uint32_t index);

  // Makes completions of earlier requests invalid.
  static void NextGeneration(Slot& slot) {
    if (++slot.generation == 0) slot.generation = 1;
  }

  const uint32_t size_;
  base::ZeroedArray<Slot> slots_;
  std::byte* const data_area_;
  std::byte* const control_area_;
  const size_t data_stride_bytes_;
  const size_t control_stride_bytes_;
  uint32_t max_bytes_;
  uint32_t first_control_;
  uint32_t first_cell_;
  uint32_t first_bulk_;
  // By class. Slots that were given back: last in, first out, so the warmest buffer comes first.
  uint32_t free_[kClasses] = {kNoSlot, kNoSlot, kNoSlot};
  uint32_t fresh_[kClasses];            // next slot that was never taken
  uint32_t free_count_[kClasses];       // both together
  base::ZeroedArray<uint64_t> owners_;  // of control slots; right while the slot is in use
};

// A FIFO of slots, linked through Slot::next in a ring: the last slot links to the first. Four bytes, because each peer has two lists.
class SlotList {
 public:
  bool empty() const { return last_ == kNoSlot; }
  uint32_t Front(SlotTable& slots) const { return slots[last_].next; }
  void PushBack(SlotTable& slots, uint32_t index) {
    if (empty()) {
      slots[index].next = index;
    } else {
      slots[index].next = slots[last_].next;
      slots[last_].next = index;
    }
    last_ = index;
  }
  // Returns the number of data messages in the list. Stops counting at `limit`.
  uint32_t CountData(SlotTable& slots, uint32_t limit) const {
    uint32_t count = 0;
    if (empty()) return count;
    for (uint32_t at = slots[last_].next;; at = slots[at].next) {
      count += slots[at].control ? 0 : slots[at].messages;
      if (at == last_ || count >= limit) return count;
    }
  }
  uint32_t PopFront(SlotTable& slots) {
    const uint32_t index = slots[last_].next;
    if (index == last_) {
      last_ = kNoSlot;
    } else {
      slots[last_].next = slots[index].next;
    }
    slots[index].next = kNoSlot;
    return index;
  }

 private:
  uint32_t last_ = kNoSlot;
};

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_SLOT_TABLE_H_
