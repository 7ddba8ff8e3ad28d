// SPDX-License-Identifier: Apache-2.0
//
// nodes --seed N [--seeds K | --minutes M] [--plan] [--keep_going]
// Runs seed after seed. Each seed runs in a new process, started anew with --only: a seed that crashes is reported as well, and a seed
// does not depend on the memory that earlier ones allocated.
#include <sys/personality.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/nodes/run.h"
#include "tests/support/seed_runs.h"

namespace sluice::nodes {
namespace {

struct Arguments {
  bool plan = false;  // is printed
  bool only = false;  // runs the seed in this process
  testing_support::SeedOptions seeds;
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
  arguments.seeds = testing_support::ParseSeedOptions(
      argc, argv,
      [&](const std::string& word) {
        if (word == "--plan") return arguments.plan = true;
        if (word == "--only") return arguments.only = true;
        return false;
      },
      [](const std::string&, const std::string&) { return false; }, Usage);
  return arguments;
}

int RunHere(uint64_t seed) {
  const Plan plan = MakePlan(seed);
  const Result result = RunPlan(plan);
  std::printf("%s", ToString(plan, result).c_str());
  return result.succeeded() ? 0 : 1;
}

bool Try(const Arguments& arguments, uint64_t seed) {
  if (arguments.plan) std::printf("%s", ToString(MakePlan(seed)).c_str());
  const std::string number = absl::StrCat(seed);
  const auto start_again = [&] {
    execl("/proc/self/exe", "nodes", "--only", "--seed", number.c_str(), nullptr);
    return 127;
  };
  if (testing_support::RunSeedInChild("simulate --calls", seed, start_again)) return true;
  std::printf("%sagain: ./dev simulate --calls --seed %lu\n", ToString(MakePlan(seed)).c_str(),
              seed);
  return false;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (arguments.only) return RunHere(arguments.seeds.seed);
  return testing_support::RunSeeds(arguments.seeds,
                                   [&](uint64_t seed) { return Try(arguments, seed); });
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
