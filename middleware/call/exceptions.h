// SPDX-License-Identifier: Apache-2.0
//
// Exceptions: converts an exception of the user's code (handlers, callbacks, interceptors, coroutines) to a status, and logs it.
//
// Ownership     The object that calls the user's code: ClientEngine, ServerEngine, the channel's interceptors.
// Threads       Any, several at a time. Sink and clock outlive it; the sink may be nullptr.
// Limits        Text of an exception: kMaxTextBytes. Rate of log records: as in EventLog.
#ifndef SLUICE_MIDDLEWARE_CALL_EXCEPTIONS_H_
#define SLUICE_MIDDLEWARE_CALL_EXCEPTIONS_H_

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transport/base/clock.h"
#include "transport/base/event_log.h"
#include "transport/base/log.h"

namespace sluice::call {

// Maximum number of bytes of an exception's what().
inline constexpr size_t kMaxTextBytes = 256;

// Call the following two functions in a catch block only.
// Returns the text of the exception that is being handled: what(), cut at kMaxTextBytes, with '?' for bytes that are not
// printable ASCII. Rethrows the unwinding of a thread that is cancelled.
std::string TextOfException();
// Returns UNKNOWN with that text. `who`: the code that threw, for example "handler of /package.Service/Method".
absl::Status StatusOfException(std::string_view who, std::string_view operation,
                               std::string_view peer);

class Exceptions {
 public:
  Exceptions(base::LogSink* log, base::Clock* clock) : log_("call", log, clock) {}

  // Logs the exception, and returns StatusOfException(). Call in a catch block only.
  absl::Status Take(std::string_view who, std::string_view operation, std::string_view peer);

 private:
  std::mutex mutex_;
  base::EventLog log_;  // mutex_
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_EXCEPTIONS_H_
