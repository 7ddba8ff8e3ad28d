// SPDX-License-Identifier: Apache-2.0
//
// The asynchronous events of a device (man ibv_get_async_event) as a table: the meaning of each for Sluice, the object that reacts, and
// its reaction. Events that are not in the table are counted.
//
// Threads       Any: constant.
#ifndef SLUICE_TRANSPORT_DEVICE_DEVICE_EVENTS_H_
#define SLUICE_TRANSPORT_DEVICE_DEVICE_EVENTS_H_

#include <infiniband/verbs.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace sluice::device {

enum class Reaction : uint8_t {
  kCount,      // no reaction: not necessary, or another mechanism detects the condition
  kPortDown,   // no new connections; peers stay as long as their traffic arrives
  kPortUp,     // new connections are possible again
  kAddresses,  // new address handles for new peers; new targets if this side's address changed
  kTarget,     // a DCT or RC queue pair that may have stopped; for other queue pairs no reaction
  kBroken,     // no object of the device can be used
};

struct EventRule {
  ibv_event_type type;
  std::string_view name;
  Reaction reaction;
  std::string_view owner;  // the room that reacts
  std::string_view what;   // its reaction
};

// An event, as reported to the owner of the device's objects.
struct DeviceEvent {
  ibv_event_type type;
  Reaction reaction;
  const void* object = nullptr;  // the CQ, QP or SRQ; to compare only. Null: the port or the device
};

std::span<const EventRule> EventRules();
// Returns the rule of an event type, or null if the type is unknown.
const EventRule* FindRule(int type);
const void* ObjectOf(const ibv_async_event& event);

// Returns one line per event: "port error: port down; endpoint: …".
std::string PrintEventRules();

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_DEVICE_EVENTS_H_
