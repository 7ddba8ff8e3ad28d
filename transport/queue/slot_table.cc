// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/slot_table.h"

#include <algorithm>

namespace sluice::queue {

SlotTable::SlotTable(std::byte* data_area, uint32_t data_slots, size_t data_stride_bytes,
                     std::byte* control_area, uint32_t control_slots, size_t control_stride_bytes,
                     uint32_t bulk_slots, uint32_t cells)
    : slots_(data_slots + control_slots + cells + bulk_slots),
      max_bytes_(static_cast<uint32_t>(std::max(data_stride_bytes, control_stride_bytes))),
      first_cell_(data_slots + control_slots),
      first_bulk_(data_slots + control_slots + cells) {
  // Downwards, so that the free lists hand out ascending buffers at first.
  for (uint32_t index = size(); index-- > 0;) {
    Slot& slot = slots_[index];
    slot.bulk = index >= first_bulk_;
    slot.cell = is_cell(index);
    slot.control = index >= data_slots && index < first_cell_;
    if (index < first_cell_) {
      slot.data = slot.control ? control_area + (index - data_slots) * control_stride_bytes
                               : data_area + index * data_stride_bytes;
    }
    Give(index);
  }
}

}  // namespace sluice::queue
