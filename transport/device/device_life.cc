// SPDX-License-Identifier: Apache-2.0
//
// Events and address changes of an open device.
#include <cstring>
#include <string>

#include "transport/base/error.h"
#include "transport/device/device.h"
#include "transport/device/gids.h"

namespace sluice::device {
namespace {

// Returns the port of an event about a port, and 0 for other events.
int PortOf(const ibv_async_event& event) {
  switch (event.event_type) {
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      return event.element.port_num;
    default:
      return 0;
  }
}

}  // namespace

int Device::ReadAsyncEvents(absl::FunctionRef<void(const DeviceEvent&)> tell) {
  int count = 0;
  ibv_async_event event = {};
  while (api().get_async_event(context_.get(), &event) == 0) {
    const EventRule* rule = FindRule(event.event_type);
    const int port = PortOf(event);
    DeviceEvent happened = {.type = event.event_type, .reaction = Reaction::kCount};
    if (rule != nullptr && (port == 0 || port == path_.port)) {
      happened.reaction = rule->reaction;
      happened.object = ObjectOf(event);
    }
    // Acknowledged before the report, because `tell` may destroy the object, which waits for the acknowledgement.
    api().ack_async_event(&event);
    ++count;
    switch (happened.reaction) {
      case Reaction::kBroken:
        if (!broken()) broken_by_.store(rule, std::memory_order_relaxed);
        break;
      case Reaction::kPortDown:
        port_up_.store(false, std::memory_order_relaxed);
        break;
      case Reaction::kPortUp:
        port_up_.store(true, std::memory_order_relaxed);
        break;
      case Reaction::kCount:
        counted_events_.fetch_add(1, std::memory_order_relaxed);
        break;
      case Reaction::kAddresses:
      case Reaction::kTarget:
        break;
    }
    tell(happened);
  }
  async_events_.fetch_add(static_cast<uint64_t>(count), std::memory_order_relaxed);
  return count;
}

absl::Status Device::Usable() const {
  if (const EventRule* rule = broken_by_.load(std::memory_order_relaxed)) {
    const std::string cause = "it raised the event \"" + std::string(rule->name) +
                              "\": the card was reset or removed, its driver gave up, or one of "
                              "its queues overran";
    return base::Error(absl::StatusCode::kUnavailable, "device " + name_ + " has failed",
                       {.layer = "device",
                        .operation = "poll",
                        .cause = cause,
                        .remedy = "look at the kernel's log; make a new endpoint, on this device "
                                  "once it is back or on another one"});
  }
  if (port_up()) return absl::OkStatus();
  const std::string port = std::to_string(path_.port);
  return base::Error(absl::StatusCode::kUnavailable, "port " + port + " of " + name_ + " is down",
                     {.layer = "device",
                      .operation = "connect",
                      .cause = "its cable is out, or its switch or interface is down",
                      .remedy = "bring it up: nothing here needs a restart then",
                      .retry_safe = true});
}

Device::Address Device::RefreshAddress() {
  ibv_gid now = {};
  if (api().query_gid(context_.get(), path_.port, path_.sgid_index, &now) == 0 &&
      std::memcmp(now.raw, gid_.raw, sizeof(now.raw)) == 0) {
    return Address::kSame;
  }
  if (gid_index_fixed_) {
    const GidEntry entry = ReadGid(api(), context_.get(), path_.port, path_.sgid_index);
    if (entry.index < 0) return Address::kNone;
    gid_ = entry.gid;
    return Address::kMoved;
  }
  ibv_port_attr port = {};
  if (api().query_port(context_.get(), path_.port, &port) != 0) return Address::kNone;
  GidEntry entry = FindGid(api(), context_.get(), path_.port, port.gid_tbl_len, gid_);
  if (entry.index < 0) entry = PickGid(api(), context_.get(), path_.port, port.gid_tbl_len);
  if (entry.index < 0) return Address::kNone;
  path_.sgid_index = static_cast<uint8_t>(entry.index);
  gid_ = entry.gid;
  return Address::kMoved;
}

}  // namespace sluice::device
