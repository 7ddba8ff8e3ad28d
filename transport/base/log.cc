// SPDX-License-Identifier: Apache-2.0
#include "transport/base/log.h"

#include <cstdio>

namespace sluice::base {

void StderrLog::Write(Severity severity, std::string_view room, std::string_view message) {
  if (severity < least_) return;
  static constexpr const char* kNames[] = {"info", "warning", "error"};
  // One call, so that lines of several threads and processes don't mix.
  std::fprintf(stderr, "sluice: %s: %.*s: %.*s\n", kNames[static_cast<int>(severity)],
               static_cast<int>(room.size()), room.data(), static_cast<int>(message.size()),
               message.data());
}

}  // namespace sluice::base
