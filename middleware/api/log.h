// SPDX-License-Identifier: Apache-2.0
//
// What a channel, a server or a messenger says of itself: what nobody has called for and so nobody would hear of, once, by whom it
// is noticed first. Nothing is said per call. docs/log.md lists the events.
//
//   class MyLog : public sluice::LogSink {
//     void Write(const sluice::LogRecord& record) override { syslog(…, record.message …); }
//   };
//   options.log = std::make_shared<MyLog>();
//
// Thread-safety Write() may come from several threads, in the middle of their polling: it must not block, nor call the object
//               that speaks.
// Bounds        Of each event eight at once, then one a second; LogRecord::left_out counts the others.
#ifndef SLUICE_MIDDLEWARE_API_LOG_H_
#define SLUICE_MIDDLEWARE_API_LOG_H_

#include <cstdint>

#include "transport/base/log.h"

namespace sluice {

using LogSink = base::LogSink;
using LogRecord = base::LogRecord;
using LogSeverity = base::Severity;

// What is written.
enum class LogLevel : uint8_t { kOff, kError, kWarning, kInfo };

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_LOG_H_
