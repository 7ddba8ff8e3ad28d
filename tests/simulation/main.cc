// SPDX-License-Identifier: Apache-2.0
//
// simulate --seed N [--seeds K | --minutes M] [--messages COUNT] [--faults none|harmless|all]
//          [--device dc|rc|mixed] [--stop_after COUNT] [--only I,J,...] [--leaves] [--no_shrink] [--log]
// Runs seed after seed. A failing one is shrunk, told of with the command that repeats it, and ends the program with 1.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/run.h"
#include "tests/simulation/shrink.h"

namespace sluice::simulation {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  PlanOptions options;
  uint64_t seeds = UINT64_MAX;
  double minutes = 0;
  uint64_t stop_after = 0;
  bool has_only = false;
  std::set<size_t> only;
  bool shrink = true;
  bool log = false;
};

[[noreturn]] void Usage(const std::string& why) {
  std::fprintf(
      stderr,
      "simulate: %s\nusage: simulate --seed N [--seeds K | --minutes M] [--messages COUNT]\n"
      "       [--faults none|harmless|all] [--device dc|rc|mixed] [--stop_after COUNT] "
      "[--only I,J,...] [--leaves] [--no_shrink] [--log]\n",
      why.c_str());
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--log") {
      arguments.log = true;
      continue;
    }
    if (word == "--leaves") {
      arguments.options.leaves = true;
      continue;
    }
    if (word == "--no_shrink") {
      arguments.shrink = false;
      continue;
    }
    if (i + 1 == argc) Usage(absl::StrCat(word, " wants a value"));
    const std::string value = argv[++i];
    bool known = true;
    if (word == "--seed") {
      known = absl::SimpleAtoi(value, &arguments.options.seed);
    } else if (word == "--seeds") {
      known = absl::SimpleAtoi(value, &arguments.seeds);
    } else if (word == "--minutes") {
      known = absl::SimpleAtod(value, &arguments.minutes);
    } else if (word == "--messages") {
      known = absl::SimpleAtoi(value, &arguments.options.messages);
    } else if (word == "--stop_after") {
      known = absl::SimpleAtoi(value, &arguments.stop_after);
    } else if (word == "--faults") {
      known = value == "none" || value == "harmless" || value == "all";
      arguments.options.faults = value == "none"       ? FaultSet::kNone
                                 : value == "harmless" ? FaultSet::kHarmless
                                                       : FaultSet::kAll;
    } else if (word == "--device") {
      known = value == "dc" || value == "rc" || value == "mixed";
      arguments.options.device = value == "dc"   ? DeviceKind::kDc
                                 : value == "rc" ? DeviceKind::kRc
                                                 : DeviceKind::kMixed;
    } else if (word == "--only") {
      arguments.has_only = true;
      for (const auto one : absl::StrSplit(value, ',', absl::SkipEmpty())) {
        size_t index = 0;
        known = known && absl::SimpleAtoi(one, &index);
        arguments.only.insert(index);
      }
    } else {
      Usage(absl::StrCat("unknown option ", word));
    }
    if (!known) Usage(absl::StrCat(word, " can't be ", value));
  }
  if (arguments.minutes == 0 && arguments.seeds == UINT64_MAX) arguments.seeds = 1;
  return arguments;
}

Plan PlanOf(const Arguments& arguments) {
  Plan plan = MakePlan(arguments.options);
  if (arguments.stop_after != 0) plan.stop_after = arguments.stop_after;
  if (arguments.log) plan.network.log = softdc::sim::LogMode::kText;
  if (!arguments.has_only) return plan;
  std::vector<Fault> kept;
  for (const size_t index : arguments.only) {
    if (index < plan.faults.size()) kept.push_back(plan.faults[index]);
  }
  plan.faults = kept;
  return plan;
}

void Explain(const Plan& plan, const Result& result, bool shrink) {
  const Violation& first = result.violations.front();
  std::printf("FAILED seed %lu: invariant \"%s\": %s\n%s", plan.options.seed,
              first.invariant.c_str(), first.what.c_str(), result.trail.c_str());
  std::printf("%s", result.log.c_str());
  std::fflush(stdout);
  if (!shrink) return;
  const Plan least = Shrink(plan);
  const Result again = RunPlan(least);
  std::printf("shrunk: %s", ToString(least).c_str());
  if (!again.ok()) {
    std::printf("invariant \"%s\": %s\n%s", again.violations.front().invariant.c_str(),
                again.violations.front().what.c_str(), again.trail.c_str());
  }
  std::printf("again: ./dev simulate %s\n", CommandOf(least).c_str());
}

int Main(int argc, char** argv) {
  Arguments arguments = Parse(argc, argv);
  const Clock::time_point start = Clock::now();
  const auto seconds = [start] {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  uint64_t seeds = 0;
  uint64_t messages = 0;
  for (; seeds < arguments.seeds; ++seeds, ++arguments.options.seed) {
    if (arguments.minutes != 0 && seconds() >= arguments.minutes * 60) break;
    const Plan plan = PlanOf(arguments);
    const double before = seconds();
    const Result result = RunPlan(plan);
    messages += result.messages;
    std::printf("%s, %.0f messages/s\n", ToString(plan, result).c_str(),
                static_cast<double>(result.messages) / (seconds() - before));
    std::fflush(stdout);
    if (result.ok()) continue;
    Explain(plan, result, arguments.shrink);
    return 1;
  }
  std::printf("%lu seeds, %lu messages in %.1f s: %.0f messages/s\n", seeds, messages, seconds(),
              static_cast<double>(messages) / seconds());
  return 0;
}

}  // namespace
}  // namespace sluice::simulation

int main(int argc, char** argv) { return sluice::simulation::Main(argc, argv); }
