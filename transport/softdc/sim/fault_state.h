// SPDX-License-Identifier: Apache-2.0
//
// FaultState: the fault plan while the simulation runs: the links that are cut, and the remaining count of
// each rule for work requests.
//
// Threads       One thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_STATE_H_
#define SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_STATE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "transport/softdc/sim/fault_plan.h"

namespace sluice::softdc::sim {

class FaultState {
 public:
  explicit FaultState(const FaultPlan& plan) : messages_(plan.messages), cm_(plan.cm) {
    for (const RequestRule& rule : plan.requests) AddRule(rule);
  }

  MessageFaults& messages() { return messages_; }
  CmFaults& cm() { return cm_; }

  void AddRule(const RequestRule& rule) { rules_.push_back(rule); }
  // Returns whether a rule that names both nodes is not used up, or the failure of a used rule has not been
  // reported yet.
  bool HasRule(uint32_t node, uint32_t peer, int64_t now_ns) const;
  // Records the time at which the failure of a rule is reported.
  void ToldAt(uint32_t node, uint32_t peer, int64_t when_ns);
  bool HasRules() const { return !rules_.empty(); }
  struct Request {
    uint32_t node;
    uint32_t peer;
    uint16_t stream;
    uint8_t opcode;
  };
  // Returns whether a rule matches this request now.
  bool Matches(const Request& request) const;
  // Returns the rule that matches this request, and counts the rule down. Removes a rule that is used up.
  std::optional<RequestRule> Match(const Request& request);

  void SetLink(uint32_t a, uint32_t b, bool up);
  bool LinkIsUp(uint32_t a, uint32_t b) const {
    return cut_.empty() || !cut_.contains(std::minmax(a, b));
  }

 private:
  static bool Names(const RequestRule& rule, const Request& request);

  MessageFaults messages_;
  CmFaults cm_;
  std::vector<RequestRule> rules_;
  std::map<std::pair<uint32_t, uint32_t>, int64_t> told_ns_;  // by node and peer: the last failure
  std::set<std::pair<uint32_t, uint32_t>> cut_;
};

}  // namespace sluice::softdc::sim

#endif  // SLUICE_TRANSPORT_SOFTDC_SIM_FAULT_STATE_H_
