// SPDX-License-Identifier: Apache-2.0
//
// ReadCounters(): the counters of a whole server or channel as a table with names and meanings.
// Counters per method are separate (observe/call_stats.h).
//
// Threads       Any: pure functions.
#ifndef SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_
#define SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "middleware/api/snapshot.h"
#include "middleware/bulk/transfer.h"

namespace sluice {

struct Reading {
  const char* name;  // "stream_resets"; the unit, if any, is in the name
  uint64_t value;
  bool now;  // current value; otherwise a count since the start
  const char* meaning;
};

std::vector<Reading> ReadCounters(const ServerSnapshot& snapshot);
std::vector<Reading> ReadCounters(const ChannelSnapshot& snapshot);
std::vector<Reading> ReadCounters(const bulk::PortCounters& counters);  // of Bulk::counters()

// A further source of counters. Called on any thread; it must not wait for a thread that may block.
// If it throws an exception, PrometheusMetrics omits its counters, and StatusReport passes the exception on.
using CounterSource = std::function<std::vector<Reading>()>;

// Calls `source`. Returns nullopt if it throws an exception, and then sets `*exception` to its text.
std::optional<std::vector<Reading>> ReadSource(const CounterSource& source, std::string* exception);

// "OK", "CANCELLED", … by absl::StatusCode, 0 to 16.
std::string CodeName(int code);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_
