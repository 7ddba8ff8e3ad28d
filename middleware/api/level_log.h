// SPDX-License-Identifier: Apache-2.0
//
// LevelLog: an object's own log: the sink of its options, or its stack's, and nothing below its level.
//
// Who owns it   Channel, Server, Messenger; it outlives their engine and endpoint.
// Thread-safety Any thread.
#ifndef SLUICE_MIDDLEWARE_API_LEVEL_LOG_H_
#define SLUICE_MIDDLEWARE_API_LEVEL_LOG_H_

#include <memory>
#include <utility>

#include "middleware/api/log.h"

namespace sluice {

class LevelLog final : public LogSink {
 public:
  // Without `sink` it is `otherwise`, which may be nullptr.
  LevelLog(std::shared_ptr<LogSink> sink, LogSink* otherwise, LogLevel level)
      : own_(std::move(sink)), to_(own_ != nullptr ? own_.get() : otherwise), level_(level) {}

  void Write(const LogRecord& record) override {
    if (to_ != nullptr && LevelOf(record.severity) <= level_) to_->Write(record);
  }

 private:
  static LogLevel LevelOf(LogSeverity severity) {
    if (severity == LogSeverity::kError) return LogLevel::kError;
    return severity == LogSeverity::kWarning ? LogLevel::kWarning : LogLevel::kInfo;
  }

  const std::shared_ptr<LogSink> own_;
  LogSink* const to_;
  const LogLevel level_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LEVEL_LOG_H_
