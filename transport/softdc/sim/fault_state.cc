// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/fault_state.h"

#include <algorithm>

namespace sluice::softdc::sim {

bool FaultState::Names(const RequestRule& rule, const Request& request) {
  return (!rule.node || *rule.node == request.node) && (!rule.peer || *rule.peer == request.peer) &&
         (!rule.stream || *rule.stream == request.stream) &&
         (!rule.opcode || static_cast<uint8_t>(*rule.opcode) == request.opcode);
}

bool FaultState::Matches(const Request& request) const {
  return std::any_of(rules_.begin(), rules_.end(), [&](const RequestRule& rule) {
    return rule.skip == 0 && Names(rule, request);
  });
}

std::optional<RequestRule> FaultState::Match(const Request& request) {
  for (auto it = rules_.begin(); it != rules_.end(); ++it) {
    if (!Names(*it, request)) continue;
    if (it->skip != 0) {
      --it->skip;
      continue;
    }
    const RequestRule matched = *it;
    if (--it->count == 0) rules_.erase(it);
    return matched;
  }
  return std::nullopt;
}

void FaultState::ToldAt(uint32_t node, uint32_t peer, int64_t when_ns) {
  int64_t& told_ns = told_ns_[{node, peer}];
  told_ns = std::max(told_ns, when_ns);
}

bool FaultState::HasRule(uint32_t node, uint32_t peer, int64_t now_ns) const {
  const auto told = told_ns_.find({node, peer});
  if (told != told_ns_.end() && told->second > now_ns) return true;
  return std::any_of(rules_.begin(), rules_.end(), [&](const RequestRule& rule) {
    return rule.node == node && rule.peer == peer;
  });
}

void FaultState::SetLink(uint32_t a, uint32_t b, bool up) {
  const std::pair<uint32_t, uint32_t> link = std::minmax(a, b);
  if (up) {
    cut_.erase(link);
  } else {
    cut_.insert(link);
  }
}

}  // namespace sluice::softdc::sim
