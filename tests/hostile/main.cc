// SPDX-License-Identifier: Apache-2.0
//
// hostile [--of calls|bulk|server] --seed N [--seeds K | --minutes M] [--acts COUNT] [--all] [--script] [--keep_going]
// Lets a hostile peer loose on a server, on a bulk port or, as a server, on clients, seed after seed, each in a process of its own: one that crashes is
// told of as well.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/hostile/bulk/script.h"
#include "tests/hostile/bulk/trial.h"
#include "tests/hostile/server/trial.h"
#include "tests/hostile/trial.h"

namespace sluice::hostile {
namespace {

struct Arguments {
  std::string of = "calls";
  uint64_t seed = 1;
  uint64_t seeds = UINT64_MAX;
  double minutes = 0;
  size_t acts = SIZE_MAX;
  bool all = false;         // what is known to break, too
  bool script = false;      // is printed
  bool keep_going = false;  // after a failure
};

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(
      stderr,
      "hostile: %s\nusage: hostile [--of calls|bulk|server] --seed N [--seeds K | --minutes M]\n"
      "       [--acts COUNT] [--all] [--script] [--keep_going]\n",
      why.c_str());
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--all") {
      arguments.all = true;
    } else if (word == "--script") {
      arguments.script = true;
    } else if (word == "--keep_going") {
      arguments.keep_going = true;
    } else {
      if (i + 1 == argc) Usage(absl::StrCat(word, " wants a value"));
      const std::string value = argv[++i];
      bool known = false;
      if (word == "--of") known = value == "calls" || value == "bulk" || value == "server";
      if (word == "--of") arguments.of = value;
      if (word == "--seed") known = absl::SimpleAtoi(value, &arguments.seed);
      if (word == "--seeds") known = absl::SimpleAtoi(value, &arguments.seeds);
      if (word == "--minutes") known = absl::SimpleAtod(value, &arguments.minutes);
      if (word == "--acts") known = absl::SimpleAtoi(value, &arguments.acts);
      if (!known) Usage(absl::StrCat(word, " can't be ", value));
    }
  }
  if (arguments.minutes == 0 && arguments.seeds == UINT64_MAX) arguments.seeds = 1;
  return arguments;
}

std::string ScriptOf(const Arguments& arguments, uint64_t seed) {
  if (arguments.of == "bulk") return ToString(bulk_port::Draw(seed));
  if (arguments.of == "server") return ToString(server::DrawServer(seed));
  return ToString(Draw(seed, !arguments.all));
}

// Prints what came of it. Whether that is as it should be.
template <typename Result>
bool Tell(uint64_t seed, const Result& result) {
  std::printf("%s", ToString(seed, result).c_str());
  std::fflush(stdout);
  return result.ok();
}

bool Run(const Arguments& arguments, uint64_t seed) {
  if (arguments.of == "bulk") {
    return Tell(seed, bulk_port::RunBulkTrial(seed, !arguments.all, arguments.acts));
  }
  if (arguments.of == "server") return Tell(seed, server::RunServerTrial(seed, arguments.acts));
  return Tell(seed, RunTrial(seed, !arguments.all, arguments.acts));
}

// What becomes of the seed in a process of its own.
bool Try(const Arguments& arguments, uint64_t seed) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) _exit(Run(arguments, seed) ? 0 : 1);
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) {
    std::fprintf(stderr, "hostile: can't start a process for seed %lu\n", seed);
    std::exit(3);
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  std::printf("FAILED seed %lu%s\nagain: ./dev hostile --of %s --seed %lu --script%s\n", seed,
              WIFSIGNALED(status) || WEXITSTATUS(status) != 1 ? ": it crashed" : "",
              arguments.of.c_str(), seed, arguments.all ? " --all" : "");
  return false;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  const auto start = std::chrono::steady_clock::now();
  uint64_t tried = 0;
  uint64_t failed = 0;
  for (; tried < arguments.seeds; ++tried) {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (arguments.minutes != 0 && took.count() >= arguments.minutes * 60) break;
    const uint64_t seed = arguments.seed + tried;
    if (arguments.script) std::printf("%s", ScriptOf(arguments, seed).c_str());
    if (Try(arguments, seed)) continue;
    ++failed;
    if (!arguments.keep_going) return 1;
  }
  std::printf("%lu seeds, %lu failed\n", tried, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sluice::hostile

int main(int argc, char** argv) { return sluice::hostile::Main(argc, argv); }
