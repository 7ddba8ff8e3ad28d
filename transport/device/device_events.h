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
  kCount,      // somebody else notices, or nobody needs to
  kPortDown,   // no new connections; peers stay as long as their traffic arrives
  kPortUp,     // all as before
  kAddresses,  // new address handles for new peers; new targets if our own address moved
  kTarget,     // a DCT that may have stopped is made anew; a queue pair of another kind is counted
  kBroken,     // nothing made from the device can be trusted any more
};

struct EventRule {
  ibv_event_type type;
  std::string_view name;
  Reaction reaction;
  std::string_view owner;  // the room that acts
  std::string_view what;   // it does
};

// What has happened, told to whoever owns the device's objects.
struct DeviceEvent {
  ibv_event_type type;
  Reaction reaction;
  const void* object = nullptr;  // the CQ, QP or SRQ; to compare only. Null: the port or the device
};

std::span<const EventRule> EventRules();
// Null: not one that this version knows.
const EventRule* FindRule(int type);
const void* ObjectOf(const ibv_async_event& event);

// One line an event: "port error: port down; endpoint: …".
std::string PrintEventRules();

}  // namespace sluice::device

#endif  // SLUICE_TRANSPORT_DEVICE_DEVICE_EVENTS_H_
