// SPDX-License-Identifier: Apache-2.0
//
// LogSink: where the few lines go that nobody asked for. A constructor argument, never a global;
// nothing is logged per message or per call.
//
// Thread-safety: Write() may come from any thread.
#ifndef SLUICE_TRANSPORT_BASE_LOG_H_
#define SLUICE_TRANSPORT_BASE_LOG_H_

#include <string_view>

namespace sluice::base {

enum class Severity { kInfo, kWarning, kError };

class LogSink {
 public:
  virtual ~LogSink() = default;
  // `room` is the folder that speaks: "cm", "queue", …
  virtual void Write(Severity severity, std::string_view room, std::string_view message) = 0;
};

// One line each to standard error: "sluice: warning: cm: …".
class StderrLog final : public LogSink {
 public:
  explicit StderrLog(Severity least = Severity::kWarning) : least_(least) {}
  void Write(Severity severity, std::string_view room, std::string_view message) override;

 private:
  const Severity least_;
};

}  // namespace sluice::base

#endif  // SLUICE_TRANSPORT_BASE_LOG_H_
