// SPDX-License-Identifier: Apache-2.0
//
// Die: ends a benchmark that cannot continue. It prints the program's name and the reason, and ends with status 1. No destructor runs, since
// other threads may still use what it would destroy.
#ifndef SLUICE_BENCHMARKS_DIE_H_
#define SLUICE_BENCHMARKS_DIE_H_

#include <errno.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice::benchmarks {

[[noreturn]] inline void Die(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, why.c_str());
  std::_Exit(1);
}
[[noreturn]] inline void Die(const absl::Status& why) {
  Die(why.ToString(absl::StatusToStringMode::kWithNoExtraData));
}

// Returns the value, or ends the program.
template <typename T>
T OrDie(absl::StatusOr<T> made) {
  if (!made.ok()) Die(made.status());
  return *std::move(made);
}

}  // namespace sluice::benchmarks

#endif  // SLUICE_BENCHMARKS_DIE_H_
