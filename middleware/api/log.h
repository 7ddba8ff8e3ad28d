// SPDX-License-Identifier: Apache-2.0
//
// LogSink, LogRecord: the log of a channel, a server or a messenger. It has conditions that no call
// reports; the component that notices a condition first writes one record. No record is written per
// call. docs/log.md lists the events.
//
//   class MyLog : public sluice::LogSink {
//     void Write(const sluice::LogRecord& record) override { syslog(…, record.message …); }
//   };
//   options.log = std::make_shared<MyLog>();
//
// Ownership     The options and the objects created with them share the sink.
// Threads       Several threads may call Write() while they poll. Write() must not block, and must
//               not call the object that writes the record.
// Limits        For each event eight records at once, then one a second; LogRecord::left_out counts
//               the omitted records.
#ifndef SLUICE_MIDDLEWARE_API_LOG_H_
#define SLUICE_MIDDLEWARE_API_LOG_H_

#include <cstdint>

#include "transport/base/log.h"

namespace sluice {

using LogSink = base::LogSink;
using LogRecord = base::LogRecord;
using LogSeverity = base::Severity;

// Minimum severity of records that are written.
enum class LogLevel : uint8_t { kOff, kError, kWarning, kInfo };

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LOG_H_
