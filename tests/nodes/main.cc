// SPDX-License-Identifier: Apache-2.0
//
// nodes --seed N [--seeds K | --minutes M] [--device dc|rc] [--loss PPM] [--unary] [--work_ms MS] [--plan] [--keep_going]
// Runs seed after seed. Each seed runs in a new process, started anew with --only: a seed that crashes is reported as well, and a seed
// does not depend on the memory that earlier ones allocated.
#include <sys/personality.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/nodes/run.h"
#include "tests/support/seed_runs.h"

namespace sluice::nodes {
namespace {

struct Arguments {
  bool plan = false;  // is printed
  bool only = false;  // runs the seed in this process
  PlanOptions options;
  std::vector<std::string> drawn;  // the words that set `options`, for the process of a seed
  testing_support::SeedOptions seeds;
};

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(stderr,
               "simulate --calls: %s\nusage: simulate --calls --seed N [--seeds K | --minutes M] "
               "[--device dc|rc] [--loss PPM] [--unary] [--work_ms MS] [--plan] [--keep_going]\n",
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
        if (word == "--unary") {
          arguments.drawn.push_back(word);
          return arguments.options.unary = true;
        }
        return false;
      },
      [&](const std::string& word, const std::string& value) {
        arguments.drawn.insert(arguments.drawn.end(), {word, value});
        PlanOptions& options = arguments.options;
        uint32_t number = 0;
        if (word == "--device") {
          options.rc = value == "rc";
          return value == "rc" || value == "dc";
        }
        if (!absl::SimpleAtoi(value, &number)) return false;
        if (word == "--loss") {
          options.loss_ppm = number;
          return number <= 100'000;
        }
        options.work_ns = number * hostile::kMs;
        return word == "--work_ms" && number > 0 && number <= 100'000;
      },
      Usage);
  return arguments;
}

Plan PlanOf(const Arguments& arguments, uint64_t seed) {
  PlanOptions options = arguments.options;
  options.seed = seed;
  return MakePlan(options);
}

int RunHere(const Arguments& arguments) {
  const Plan plan = PlanOf(arguments, arguments.seeds.seed);
  const Result result = RunPlan(plan);
  std::printf("%s", ToString(plan, result).c_str());
  return result.succeeded() ? 0 : 1;
}

bool Try(const Arguments& arguments, uint64_t seed) {
  if (arguments.plan) std::printf("%s", ToString(PlanOf(arguments, seed)).c_str());
  std::vector<std::string> words = {"nodes", "--only", "--seed", absl::StrCat(seed)};
  words.insert(words.end(), arguments.drawn.begin(), arguments.drawn.end());
  const auto start_again = [&] {
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    execv("/proc/self/exe", pointers.data());
    return 127;
  };
  if (testing_support::RunSeedInChild("simulate --calls", seed, start_again)) return true;
  std::printf("%sagain: ./dev simulate --calls --seed %lu %s\n",
              ToString(PlanOf(arguments, seed)).c_str(), seed,
              absl::StrJoin(arguments.drawn, " ").c_str());
  return false;
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  if (arguments.only) return RunHere(arguments);
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
