// SPDX-License-Identifier: Apache-2.0
//
// Handling of ids when their device is removed or its address changes. It is the same in every state, so it
// is not part of the table.
#include <memory>
#include <utility>

#include "transport/softdc/cm/engine.h"

namespace sluice::softdc::cm {

void Engine::TellOfDevice(Id* id, rdma_cm_event_type type) {
  auto event = std::make_unique<Event>();
  event->owner = id;
  event->id = id->number;
  event->uid = id->uid;
  event->is_ud = IsDatagram(id->qp_type);
  event->type = type;
  Push(std::move(event));
}

void Engine::RemoveDevice() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, id] : ids_) {
    if (!id->has_device) continue;
    StopTimer(id.get());
    for (auto it = unidentified_.begin(); it != unidentified_.end();) {
      const auto [wire, unidentified] = *it++;
      if (unidentified.listener == id.get()) DropUnidentified(wire, /*refused=*/false);
    }
    CloseKey(id.get());
    CloseWire(id.get());
    id->state = State::kClosed;
    id->has_device = id->has_path = false;
    TellOfDevice(id.get(), RDMA_CM_EVENT_DEVICE_REMOVAL);
  }
}

void Engine::ChangeAddress() {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [number, id] : ids_) {
    if (id->has_device) TellOfDevice(id.get(), RDMA_CM_EVENT_ADDR_CHANGE);
  }
}

}  // namespace sluice::softdc::cm
