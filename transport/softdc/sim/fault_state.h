// SPDX-License-Identifier: Apache-2.0
//
// FaultState: the fault plan while the simulation runs: which links are cut, and what is left of
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
  // Names both, and is not used up; or used, and the failure has not been told yet.
  bool HasRule(uint32_t node, uint32_t peer, int64_t now_ns) const;
  // When the failure that a rule made is told.
  void ToldAt(uint32_t node, uint32_t peer, int64_t when_ns);
  bool HasRules() const { return !rules_.empty(); }
  struct Request {
    uint32_t node;
    uint32_t peer;
    uint16_t stream;
    uint8_t opcode;
  };
  // Whether this request would fall under one now.
  bool Matches(const Request& request) const;
  // The rule that this request falls under, counted down; rules that are used up go.
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
