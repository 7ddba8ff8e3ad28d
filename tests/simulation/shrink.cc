// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/shrink.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/simulation/run.h"

namespace sluice::simulation {

Plan Shrink(const Plan& plan, const std::function<bool(const Plan&)>& fails) {
  Plan least = plan;
  const auto attempt = [&](const Plan& smaller) {
    if (!fails(smaller)) return false;
    least = smaller;
    return true;
  };
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (uint64_t part = 2; least.stop_after > 1 && part <= 16; part *= 2) {
      Plan fewer = least;
      fewer.stop_after = least.stop_after - std::max<uint64_t>(1, least.stop_after / part);
      if (!attempt(fewer)) continue;
      smaller = true;
      break;
    }
    // Stretches of faults, the longest first.
    for (size_t length = least.faults.size(); length > 0; length /= 2) {
      for (size_t at = 0; at < least.faults.size();) {
        Plan fewer = least;
        const size_t end = std::min(at + length, fewer.faults.size());
        fewer.faults.erase(fewer.faults.begin() + static_cast<ptrdiff_t>(at),
                           fewer.faults.begin() + static_cast<ptrdiff_t>(end));
        if (attempt(fewer)) {
          smaller = true;
        } else {
          at += length;
        }
      }
    }
  }
  return least;
}

Plan Shrink(const Plan& plan) {
  const Result first = RunPlan(plan);
  if (first.ok()) return plan;
  const std::string invariant = first.violations.front().invariant;
  return Shrink(plan, [&](const Plan& smaller) {
    const Result result = RunPlan(smaller);
    return !result.ok() && result.violations.front().invariant == invariant;
  });
}

std::string CommandOf(const Plan& plan) {
  constexpr const char* kSets[] = {"none", "harmless", "all"};
  const Plan whole = MakePlan(plan.options);
  std::vector<size_t> only;
  for (const Fault& fault : plan.faults) {
    const auto found = std::find(whole.faults.begin(), whole.faults.end(), fault);
    only.push_back(static_cast<size_t>(found - whole.faults.begin()));
  }
  std::string command =
      absl::StrCat("--seed ", plan.options.seed, " --messages ", plan.options.messages,
                   " --faults ", kSets[static_cast<size_t>(plan.options.faults)]);
  constexpr const char* kDevices[] = {"dc", "rc", "mixed"};
  if (plan.options.device != DeviceKind::kDc) {
    absl::StrAppend(&command, " --device ", kDevices[static_cast<size_t>(plan.options.device)]);
  }
  if (plan.options.leaves) command += " --leaves";
  if (plan.stop_after != plan.options.messages) {
    absl::StrAppend(&command, " --stop_after ", plan.stop_after);
  }
  if (plan.faults != whole.faults) {
    absl::StrAppend(&command, " --only ", only.empty() ? "," : absl::StrJoin(only, ","));
  }
  return command;
}

}  // namespace sluice::simulation
