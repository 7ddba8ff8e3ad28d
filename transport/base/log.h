// SPDX-License-Identifier: Apache-2.0
//
// LogSink: where the few lines go that nobody asked for. A constructor argument, never a global;
// nothing is logged per message or per call (event_log.h sees to it).
//
// Thread-safety: Write() may come from any thread, while that thread polls: it must neither block nor call back.
#ifndef SLUICE_TRANSPORT_BASE_LOG_H_
#define SLUICE_TRANSPORT_BASE_LOG_H_

#include <cstdint>
#include <string_view>

namespace sluice::base {

enum class Severity : uint8_t { kInfo, kWarning, kError };

// Valid during Write().
struct LogRecord {
  Severity severity = Severity::kInfo;
  std::string_view room;     // the folder that speaks: "call", "endpoint", …
  std::string_view event;    // what a filter goes by: "connection lost", … (docs/log.md has all)
  std::string_view peer;     // "host:port", or empty
  std::string_view message;  // for people; complete without the rest
  uint64_t left_out = 0;     // events of this name before it that were not written: too many
};

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void Write(const LogRecord& record) = 0;
};

// One line each to standard error: "sluice: warning: call: …".
class StderrLog final : public LogSink {
 public:
  void Write(const LogRecord& record) override;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_LOG_H_
