// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/trail.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "tests/simulation/fault.h"

namespace sluice::simulation {
namespace {

struct Words {
  const char* name;
  const char* a;
  const char* b;
};
constexpr std::array<Words, static_cast<size_t>(Step::kCount)> kWords = {{
    {"dial", "code", ""},
    {"up", "end", ""},
    {"down", "end", "code"},
    {"commit", "end", "number"},
    {"deliver", "end", "number"},
    {"acked", "end", "total"},
    {"fault", "kind", "amount"},
    {"healed", "kind", ""},
    {"start", "life", ""},
}};

}  // namespace

std::string Trail::Last(size_t count, uint32_t node, uint32_t peer) const {
  std::vector<std::string> lines;
  const uint64_t oldest = count_ < kEntries ? 0 : count_ - kEntries;
  for (uint64_t i = count_; i-- > oldest && lines.size() < count;) {
    const Entry& entry = entries_[i % kEntries];
    const bool pair =
        (entry.node == node && entry.peer == peer) || (entry.node == peer && entry.peer == node);
    const bool general = entry.step >= Step::kFault;
    if (!pair && !general) continue;
    const Words& words = kWords[static_cast<size_t>(entry.step)];
    std::string line = absl::StrCat("  ", entry.now_ns, " ns  host ", entry.node, " (", entry.peer,
                                    ") ", words.name, " ", words.a, " ", entry.a);
    if (entry.step == Step::kFault || entry.step == Step::kHealed) {
      absl::StrAppend(&line, " ", Name(static_cast<FaultKind>(entry.a)));
    }
    if (*words.b != 0) absl::StrAppend(&line, " ", words.b, " ", entry.b);
    lines.push_back(std::move(line));
  }
  std::string text;
  for (auto line = lines.rbegin(); line != lines.rend(); ++line)
    absl::StrAppend(&text, *line, "\n");
  return text;
}

}  // namespace sluice::simulation
