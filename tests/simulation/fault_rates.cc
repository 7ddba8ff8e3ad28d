// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fault_rates.h"

#include <algorithm>
#include <cstdint>

namespace sluice::simulation {
namespace {

using softdc::sim::CmFaults;
using softdc::sim::MessageFaults;

constexpr int64_t kMs = 1'000'000;

}  // namespace

bool IsRate(FaultKind kind) {
  return kind == FaultKind::kDelay || kind == FaultKind::kLoss || kind == FaultKind::kAnswerLoss ||
         kind == FaultKind::kCmTrouble;
}

bool IsOfHost(FaultKind kind) {
  return kind == FaultKind::kKill || kind == FaultKind::kUnplug || kind == FaultKind::kFatal ||
         kind == FaultKind::kPause || kind == FaultKind::kPortDown;
}

void FaultRates::Begin(const Fault& fault, softdc::sim::Simulation& simulation) {
  rates_.push_back(fault);
  Apply(simulation);
}

void FaultRates::End(const Fault& fault, softdc::sim::Simulation& simulation) {
  rates_.erase(std::find(rates_.begin(), rates_.end(), fault));
  Apply(simulation);
}

void FaultRates::Apply(softdc::sim::Simulation& simulation) const {
  MessageFaults messages;
  CmFaults cm;
  for (const Fault& fault : rates_) {
    switch (fault.kind) {
      case FaultKind::kDelay:
        messages.delay_ppm = fault.amount;
        messages.delay_ns = std::min<int64_t>(fault.length_ns, kMs / 10);
        break;
      case FaultKind::kLoss:
        messages.loss_ppm = fault.amount;
        break;
      case FaultKind::kAnswerLoss:
        messages.ack_loss_ppm = fault.amount;
        break;
      default:
        cm.loss_ppm = fault.amount;
        cm.duplicate_ppm = fault.amount;
        cm.delay_ppm = fault.amount;
        cm.delay_ns = 2 * kMs;
        cm.reject_ppm = fault.amount / 2;
    }
  }
  simulation.message_faults() = messages;
  simulation.cm_faults() = cm;
}

}  // namespace sluice::simulation
