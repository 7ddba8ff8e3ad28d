// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/slot_table.h"

#include <algorithm>

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
  owners_[index - first_control_] = owner;
  return index;
}

uint32_t SlotTable::ControlOf(uint64_t owner) const {
  uint32_t count = 0;
  for (uint32_t index = first_control_; index < fresh_[kControl]; ++index) {
    if (slots_[index].use != SlotUse::kFree && owners_[index - first_control_] == owner) ++count;
  }
  return count;
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
