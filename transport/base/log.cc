// SPDX-License-Identifier: Apache-2.0
#include "transport/base/log.h"

#include <cstdio>
#include <string>

namespace sluice::base {

void StderrLog::Write(const LogRecord& record) {
  static constexpr const char* kNames[] = {"info", "warning", "error"};
  std::string line = "sluice: ";
  line.append(kNames[static_cast<int>(record.severity)]).append(": ").append(record.room);
  line.append(": ").append(record.message);
  if (record.left_out != 0) {
    line.append(" (and ").append(std::to_string(record.left_out)).append(" like it before)");
  }
  // One call, so that lines of several threads and processes don't mix.
  std::fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace sluice::base
