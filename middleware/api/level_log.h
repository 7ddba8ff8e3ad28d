// SPDX-License-Identifier: Apache-2.0
//
// LevelLog: the log of an object: the sink of its options, or of its stack, without records below
// its level.
//
// Ownership     Channel, Server and Messenger own it. It outlives their engine and endpoint.
// Threads       Any.
#ifndef SLUICE_MIDDLEWARE_API_LEVEL_LOG_H_
#define SLUICE_MIDDLEWARE_API_LEVEL_LOG_H_

#include <memory>
#include <utility>

#include "middleware/api/log.h"

namespace sluice {

class LevelLog final : public LogSink {
 public:
  // Uses `sink`, or `otherwise` if that is nullptr. Both may be nullptr.
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
