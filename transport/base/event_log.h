// SPDX-License-Identifier: Apache-2.0
//
// EventLog: writes the events of one object to a LogSink, and limits them: of each event the first eight, then one per second.
//
// Ownership     The object that logs. Sink and clock outlive it. Without a sink it writes nothing.
// Threads       The owner's.
// Limits        One entry for each event name. Names are literals.
#ifndef SLUICE_TRANSPORT_BASE_EVENT_LOG_H_
#define SLUICE_TRANSPORT_BASE_EVENT_LOG_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/log.h"

namespace sluice::base {

class EventLog {
 public:
  static constexpr int64_t kAtOnce = 8;
  static constexpr int64_t kPeriodNs = 1'000'000'000;

  EventLog(std::string_view room, LogSink* sink, Clock* clock)
      : room_(room), sink_(sink), clock_(clock) {}

  // Returns whether a sink is set. Without a sink, the caller need not build a message.
  bool listens() const { return sink_ != nullptr; }
  void Say(Severity severity, std::string_view event, std::string_view peer,
           std::string_view message);

 private:
  struct Event {
    std::string_view name;
    int64_t full_at_ns;  // time after which a burst of kAtOnce records is allowed again
    uint64_t left_out = 0;
  };

  const std::string_view room_;
  LogSink* const sink_;
  Clock* const clock_;
  std::vector<Event> events_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_EVENT_LOG_H_
