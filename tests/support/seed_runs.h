// SPDX-License-Identifier: Apache-2.0
//
// SeedRuns: the command line and the loop of programs that try seed after seed, each seed in a process of its own, so that a crash
// is reported like a failure.
#ifndef SLUICE_TESTS_SUPPORT_SEED_RUNS_H_
#define SLUICE_TESTS_SUPPORT_SEED_RUNS_H_

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sluice::testing_support {

struct SeedOptions {
  uint64_t seed = 1;
  uint64_t seeds = UINT64_MAX;
  double minutes = 0;       // 0: no limit
  bool keep_going = false;  // after a failure
};

// Reads --seed, --seeds, --minutes and --keep_going. `flag` takes any other word without a value, `value` one with a value: false
// if it does not know the word or the value. `usage` ends the process.
inline SeedOptions ParseSeedOptions(
    int argc, char** argv, const std::function<bool(const std::string&)>& flag,
    const std::function<bool(const std::string&, const std::string&)>& value,
    const std::function<void(const std::string&)>& usage) {
  SeedOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--keep_going") {
      options.keep_going = true;
      continue;
    }
    if (flag(word)) continue;
    if (i + 1 == argc) usage(absl::StrCat(word, " is unknown or needs a value"));
    const std::string text = argv[++i];
    bool known = false;
    if (word == "--seed") {
      known = absl::SimpleAtoi(text, &options.seed);
    } else if (word == "--seeds") {
      known = absl::SimpleAtoi(text, &options.seeds);
    } else if (word == "--minutes") {
      known = absl::SimpleAtod(text, &options.minutes);
    } else {
      known = value(word, text);
    }
    if (!known) usage(absl::StrCat(word, " can't be ", text));
  }
  if (options.minutes == 0 && options.seeds == UINT64_MAX) options.seeds = 1;
  return options;
}

// Runs `body` in a child process. Returns true if it ends with 0. Else prints that the seed failed, and whether it crashed.
// `body` returns the exit code; 127 means that the process could not be started.
inline bool RunSeedInChild(const char* program, uint64_t seed, const std::function<int()>& body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child ||
      (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    std::fprintf(stderr, "%s: can't start a process for seed %lu\n", program, seed);
    std::exit(3);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::printf("FAILED seed %lu%s\n", seed,
              WIFSIGNALED(status) || WEXITSTATUS(status) != 1 ? ": it crashed" : "");
  return false;
}

// Tries the seeds in turn until one fails. Returns the exit code of the program.
inline int RunSeeds(const SeedOptions& options, const std::function<bool(uint64_t)>& run_seed) {
  const auto start = std::chrono::steady_clock::now();
  uint64_t tried = 0;
  uint64_t failed = 0;
  for (; tried < options.seeds; ++tried) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (options.minutes != 0 && took.count() >= options.minutes * 60) break;
    if (run_seed(options.seed + tried)) continue;
    ++failed;
    if (!options.keep_going) return 1;
  }
  std::printf("%lu seeds, %lu failed\n", tried, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_SEED_RUNS_H_
