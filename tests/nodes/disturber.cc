// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/disturber.h"

namespace sluice::nodes {
namespace {

using simulation::Fault;
using simulation::FaultKind;
using simulation::IsOfHost;
using simulation::IsRate;

constexpr int64_t kMs = 1'000'000;

}  // namespace

void Disturber::Begin(const Fault& fault) {
  if (stopped_ || (IsOfHost(fault.kind) && IsDown(fault.node)) || !Do(fault)) return;
  if (IsOfHost(fault.kind)) down_.insert(fault.node);
  if (fault.length_ns == 0) return;
  ++under_way_;
  stage_->simulation().After(fault.length_ns, [this, fault] {
    --under_way_;
    if (IsOfHost(fault.kind)) down_.erase(fault.node);
    Undo(fault);
  });
}

void Disturber::FailRequests(const Fault& fault) {
  constexpr ibv_wc_status kStatuses[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR,
                                         IBV_WC_REM_ACCESS_ERR, IBV_WC_REM_OP_ERR};
  const uint64_t draw = fault.at_message * 0x9e3779b97f4a7c15u >> 32;
  softdc::sim::RequestRule rule;
  rule.node = fault.node;
  rule.peer = fault.peer;
  rule.count = 1 + draw % 3;
  rule.skip = draw / 3 % 8;
  rule.status = kStatuses[draw / 24 % 4];
  rule.carried_out = draw / 96 % 2 == 0;
  if (rule.carried_out && draw / 192 % 2 == 0) {
    rule.lands_late_ns = static_cast<int64_t>(draw / 384 % (2 * kMs));
  }
  stage_->simulation().FailNext(rule);
}

bool Disturber::Do(const Fault& fault) {
  softdc::sim::Simulation& simulation = stage_->simulation();
  if (IsRate(fault.kind)) {
    rates_.Begin(fault, simulation);
    return true;
  }
  switch (fault.kind) {
    case FaultKind::kPause:
      simulation.Pause(fault.node);
      return true;
    case FaultKind::kKill:
      simulation.Kill(fault.node);
      stage_->Kill(fault.node);
      return true;
    case FaultKind::kRequestError:
      FailRequests(fault);
      return true;
    case FaultKind::kDeadDci:
      return simulation.MakeDciDeadInRts(fault.node, fault.amount % 2);
    case FaultKind::kCutLink:
      simulation.CutLink(fault.node, fault.peer);
      return true;
    case FaultKind::kPortDown:
      simulation.PortDown(fault.node);
      return true;
    default:
      return false;
  }
}

void Disturber::Undo(const Fault& fault) {
  softdc::sim::Simulation& simulation = stage_->simulation();
  if (IsRate(fault.kind)) return rates_.End(fault, simulation);
  switch (fault.kind) {
    case FaultKind::kPause:
      return simulation.Resume(fault.node);
    case FaultKind::kKill:
      simulation.Revive(fault.node);
      return stage_->Restart(fault.node);
    case FaultKind::kCutLink:
      return simulation.HealLink(fault.node, fault.peer);
    case FaultKind::kPortDown:
      return simulation.PortUp(fault.node);
    default:
      return;
  }
}

}  // namespace sluice::nodes
