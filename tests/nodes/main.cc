// SPDX-License-Identifier: Apache-2.0
//
// nodes --seed N [--seeds K | --minutes M] [--plan] [--keep_going]
// Runs seed after seed. Each seed runs in a new process, started anew with --only: a seed that crashes is reported as well, and a seed
// does not depend on the memory that earlier ones allocated.
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/nodes/run.h"

namespace sluice::nodes {
namespace {

struct Arguments {
  uint64_t seed = 1;
  uint64_t seeds = UINT64_MAX;
  double minutes = 0;
  bool plan = false;        // is printed
  bool keep_going = false;  // after a failure
  bool only = false;        // runs the seed in this process
};

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(stderr,
               "simulate --calls: %s\nusage: simulate --calls --seed N [--seeds K | --minutes M] "
               "[--plan] [--keep_going]\n",
               why.c_str());
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--plan") {
      arguments.plan = true;
    } else if (word == "--keep_going") {
      arguments.keep_going = true;
    } else if (word == "--only") {
      arguments.only = true;
    } else {
      if (i + 1 == argc) Usage(absl::StrCat(word, " wants a value"));
      const std::string value = argv[++i];
      bool known = false;
      if (word == "--seed") known = absl::SimpleAtoi(value, &arguments.seed);
      if (word == "--seeds") known = absl::SimpleAtoi(value, &arguments.seeds);
      if (word == "--minutes") known = absl::SimpleAtod(value, &arguments.minutes);
      if (!known) Usage(absl::StrCat(word, " can't be ", value));
    }
  }
  if (arguments.minutes == 0 && arguments.seeds == UINT64_MAX) arguments.seeds = 1;
  return arguments;
}

int RunHere(uint64_t seed) {
  const Plan plan = MakePlan(seed);
  const Result result = RunPlan(plan);
  std::printf("%s", ToString(plan, result).c_str());
  return result.succeeded() ? 0 : 1;
}

bool Try(uint64_t seed) {
  std::fflush(stdout);
  const std::string number = absl::StrCat(seed);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "nodes", "--only", "--seed", number.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child ||
      (WIFEXITED(status) && WEXITSTATUS(status) == 127)) {
    std::fprintf(stderr, "simulate --calls: can't start a process for seed %lu\n", seed);
    std::exit(3);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::printf("FAILED seed %lu%s\n%sagain: ./dev simulate --calls --seed %lu\n", seed,
              WIFSIGNALED(status) || WEXITSTATUS(status) != 1 ? ": it crashed" : "",
              ToString(MakePlan(seed)).c_str(), seed);
  return false;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (arguments.only) return RunHere(arguments.seed);
  const auto start = std::chrono::steady_clock::now();
  uint64_t tried = 0;
  uint64_t failed = 0;
  for (; tried < arguments.seeds; ++tried) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (arguments.minutes != 0 && took.count() >= arguments.minutes * 60) break;
    const uint64_t seed = arguments.seed + tried;
    if (arguments.plan) std::printf("%s", ToString(MakePlan(seed)).c_str());
    if (Try(seed)) continue;
    ++failed;
    if (!arguments.keep_going) return 1;
  }
  std::printf("%lu seeds, %lu failed\n", tried, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::nodes

// The order of hash tables follows addresses: with the same ones the same seed is the same run.
int main(int argc, char** argv) {
  const int persona = personality(0xffffffff);
  if (persona >= 0 && (persona & ADDR_NO_RANDOMIZE) == 0 &&
      personality(static_cast<unsigned long>(persona) | ADDR_NO_RANDOMIZE) >= 0) {
    execv("/proc/self/exe", argv);
  }
  return sluice::nodes::Main(argc, argv);
}
