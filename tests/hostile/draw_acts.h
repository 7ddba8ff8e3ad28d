// SPDX-License-Identifier: Apache-2.0
//
// DrawActs: the acts of a script, drawn from the weights of its operations.
#ifndef SLUICE_TESTS_HOSTILE_DRAW_ACTS_H_
#define SLUICE_TESTS_HOSTILE_DRAW_ACTS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "transport/base/random.h"

namespace sluice::hostile {

// Appends acts to the script. A seed enables `first` and about a third of the other operations. Each persona begins with `first`.
// `is_left_out` returns true for the name of an operation that must not be drawn. `most_acts`: approximate maximum number of acts.
template <typename Script, typename Info, size_t kCount, typename LeftOut>
void DrawActs(base::SeededRandom& random, const Info (&operations)[kCount],
              decltype(Info::operation) first, uint64_t most_acts, const LeftOut& is_left_out,
              Script* script) {
  std::array<uint32_t, kCount> weights = {};
  uint32_t total = 0;
  for (const Info& one : operations) {
    const bool enabled = one.operation == first || random.Below(3) == 0;
    if (!enabled || is_left_out(one.name)) continue;
    weights[static_cast<size_t>(one.operation)] = one.weight;
    total += one.weight;
  }
  const size_t acts = 8 + random.Below(1 + random.Below(most_acts));
  for (size_t i = 0; i < acts; ++i) {
    auto& act = script->acts.emplace_back();
    uint64_t at = random.Below(total);
    size_t which = 0;
    while (at >= weights[which]) at -= weights[which++];
    act.operation = static_cast<decltype(Info::operation)>(which);
    act.persona = static_cast<uint32_t>(random.Below(script->manners.personas));
    act.dice = random.Next64();
    // Most acts follow at once. One in eight follows when the act before it has had its effect.
    act.pause_ns =
        static_cast<int64_t>(random.Below(8) == 0 ? random.Below(400'000) : random.Below(10'000));
    if (i < script->manners.personas) {
      act.operation = first;
      act.persona = static_cast<uint32_t>(i);
    }
  }
}

// One line for each act.
template <typename Script>
void AppendActs(const Script& script, std::string* text) {
  for (size_t i = 0; i < script.acts.size(); ++i) {
    const auto& act = script.acts[i];
    absl::StrAppend(text, "  ", i, ": ", Name(act.operation), " as ", act.persona, ", then ",
                    act.pause_ns, " ns\n");
  }
}

}  // namespace sluice::hostile

#endif  // SLUICE_TESTS_HOSTILE_DRAW_ACTS_H_
