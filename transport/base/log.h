// SPDX-License-Identifier: Apache-2.0
//
// LogSink: receives log records. It is passed to constructors, and never a global. No record is
// written per message or per call (event_log.h limits them).
//
// Ownership     The user owns it. It outlives the objects that write to it.
// Threads       Any thread may call Write() while it polls. Write() must neither block nor call
//               back.
#ifndef SLUICE_TRANSPORT_BASE_LOG_H_
#define SLUICE_TRANSPORT_BASE_LOG_H_

#include <cstdint>
#include <string_view>

namespace sluice::base {

enum class Severity : uint8_t { kInfo, kWarning, kError };

// Valid during Write().
struct LogRecord {
  Severity severity = Severity::kInfo;
  std::string_view room;     // directory of the source: "call", "endpoint", …
  std::string_view event;    // name for filters: "connection lost", … (list: docs/log.md)
  std::string_view peer;     // "host:port"; empty: none
  std::string_view message;  // text for people; complete without the other fields
  uint64_t left_out = 0;     // number of omitted earlier records of this event
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(const LogRecord& record) = 0;
};

// Writes one line per record to standard error: "sluice: warning: call: …".
class StderrLog final : public LogSink {
 public:
  void Write(const LogRecord& record) override;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_LOG_H_
