// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/slot_table.h"

#include <algorithm>
#include <utility>

namespace sluice::queue {

SlotTable::SlotTable(std::byte* data_area, uint32_t data_slots, size_t data_stride_bytes,
                     std::byte* control_area, uint32_t control_slots, size_t control_stride_bytes,
                     uint32_t bulk_slots, uint32_t cells)
    : size_(data_slots + control_slots + cells + bulk_slots),
      slots_(size_),
      data_area_(data_area),
      control_area_(control_area),
      data_stride_bytes_(data_stride_bytes),
      control_stride_bytes_(control_stride_bytes),
      max_bytes_(static_cast<uint32_t>(std::max(data_stride_bytes, control_stride_bytes))),
      first_control_(data_slots),
      first_cell_(data_slots + control_slots),
      first_bulk_(data_slots + control_slots + cells),
      fresh_{0, first_control_, first_bulk_},
      free_count_{data_slots, control_slots, bulk_slots},
      owners_(control_slots) {}

uint32_t SlotTable::TakeControlFor(uint64_t owner) {
  const uint32_t index = TakeFrom(kControl);
  if (index == kNoSlot) return kNoSlot;
  // Twice as many as there can be, so that entries come and go without an allocation.
  if (control_of_.capacity() == 0) control_of_.reserve(size_t{2} * control_slots());
  owners_[index - first_control_] = owner;
  ++control_of_[owner];
  return index;
}

void SlotTable::GiveControl(uint32_t index) {
  PutBack(kControl, index);
  const uint64_t owner = std::exchange(owners_[index - first_control_], 0);
  if (owner == 0) return;
  const auto it = control_of_.find(owner);
  if (--it->second == 0) control_of_.erase(it);
}

void SlotTable::BeginCells(uint32_t first, uint32_t count) {
  if (slots_[first].generation != 0) return;
  for (uint32_t index = first; index < first + count; ++index) Begin(index);
}

uint32_t SlotTable::BeginNext(Class from) {
  const uint32_t index = fresh_[from]++;
  Begin(index);
  return index;
}

void SlotTable::Begin(uint32_t index) {
  Slot slot;
  slot.bulk = index >= first_bulk_;
  slot.cell = is_cell(index);
  slot.control = index >= first_control_ && index < first_cell_;
  slot.released = slot.control || slot.bulk || slot.cell;
  if (index < first_cell_) {
    slot.data = slot.control ? control_area_ + (index - first_control_) * control_stride_bytes_
                             : data_area_ + index * data_stride_bytes_;
  }
  slots_[index] = slot;
}

}  // namespace sluice::queue
