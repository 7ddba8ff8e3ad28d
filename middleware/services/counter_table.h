// SPDX-License-Identifier: Apache-2.0
//
// ReadCounters(): what is counted once for a whole server or channel, as a table: one place for its names and meanings.
// Calls by method are apart (observe/call_stats.h).
//
// Thread-safety Pure functions.
#ifndef SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_
#define SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "middleware/api/snapshot.h"
#include "middleware/bulk/transfer.h"

namespace sluice {

struct Reading {
  const char* name;  // "stream_resets"; no unit but in its name
  uint64_t value;
  bool now;  // as of now; otherwise since the start
  const char* meaning;
};

std::vector<Reading> ReadCounters(const ServerSnapshot& snapshot);
std::vector<Reading> ReadCounters(const ChannelSnapshot& snapshot);
std::vector<Reading> ReadCounters(const bulk::PortCounters& counters);  // of Bulk::counters()

// What else there is to read. Any thread; it must not wait for a thread that may hang.
using CounterSource = std::function<std::vector<Reading>()>;

// "OK", "CANCELLED", … by absl::StatusCode, 0 to 16.
std::string CodeName(int code);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_SERVICES_COUNTER_TABLE_H_
