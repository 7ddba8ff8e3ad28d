// SPDX-License-Identifier: Apache-2.0
//
// hostile [--of calls|bulk|server] --seed N [--seeds K | --minutes M] [--acts COUNT] [--all] [--script] [--keep_going]
// Runs a hostile peer against a server, against a bulk port or, as a server, against clients: seed after seed, each in a process of
// its own.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/hostile/bulk/script.h"
#include "tests/hostile/bulk/trial.h"
#include "tests/hostile/server/trial.h"
#include "tests/hostile/trial.h"
#include "tests/support/seed_runs.h"

namespace sluice::hostile {
namespace {

struct Arguments {
  std::string of = "calls";
  size_t acts = SIZE_MAX;
  bool all = false;     // what is known to break, too
  bool script = false;  // is printed
  testing_support::SeedOptions seeds;
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
  arguments.seeds = testing_support::ParseSeedOptions(
      argc, argv,
      [&](const std::string& word) {
        if (word == "--all") return arguments.all = true;
        if (word == "--script") return arguments.script = true;
        return false;
      },
      [&](const std::string& word, const std::string& value) {
        if (word == "--acts") return absl::SimpleAtoi(value, &arguments.acts);
        if (word == "--of") arguments.of = value;
        return word == "--of" && (value == "calls" || value == "bulk" || value == "server");
      },
      Usage);
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

bool Try(const Arguments& arguments, uint64_t seed) {
  if (arguments.script) std::printf("%s", ScriptOf(arguments, seed).c_str());
  if (testing_support::RunSeedInChild("hostile", seed,
                                      [&] { return Run(arguments, seed) ? 0 : 1; })) {
    return true;
  }
  std::printf("again: ./dev hostile --of %s --seed %lu --script%s\n", arguments.of.c_str(), seed,
              arguments.all ? " --all" : "");
  return false;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  return testing_support::RunSeeds(arguments.seeds,
                                   [&](uint64_t seed) { return Try(arguments, seed); });
}

}  // namespace
}  // namespace sluice::hostile

int main(int argc, char** argv) { return sluice::hostile::Main(argc, argv); }
