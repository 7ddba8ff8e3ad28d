// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fault_driver.h"

namespace sluice::simulation {
namespace {

using softdc::sim::RequestRule;

// A dead DCI is found after eight attempts, and the first of them may be the answer to a question of keepalive
// (docs/decisions/0017). Who asked waits for a shorter time.
int64_t LengthOf(const Fault& fault, const endpoint::Options& options) {
  if (fault.kind != FaultKind::kDeadDci) return fault.length_ns;
  return 2 * options.keepalive_ns + 4 * options.dead_peer_ns;
}

// The device tries a request for as long as it likes (personalities minimum_timeout, own_retries). One that fails may hold back the
// answer to a question of keepalive until whoever asked has given its peer up.
bool RetriesForLong(const softdc::Dials& dials) {
  return dials.retries.min_timeout != 0 || dials.retries.total_retry_ns != 0;
}

}  // namespace

FaultDriver::FaultDriver(Scene& scene, std::vector<std::unique_ptr<Node>>& nodes)
    : scene_(scene),
      nodes_(nodes),
      busy_(nodes.size()),
      settled_(nodes.size() * nodes.size()),
      trials_(nodes.size()) {}

void FaultDriver::Begin(const Fault& fault) {
  if (IsOfHost(fault.kind) && busy_[fault.node]) return;
  if (!nodes_[fault.node]->running()) return;
  if (!Do(fault)) return;
  ++happened_;
  scene_.trail.Add(scene_.now_ns(), fault.node, fault.peer, Step::kFault,
                   static_cast<uint64_t>(fault.kind), fault.amount);
  // With RC it ends the peer: until its host has been told.
  if (fault.kind == FaultKind::kRequestError &&
      (RetriesForLong(scene_.plan.network.dials) || scene_.plan.rc[fault.node])) {
    scene_.ledger.BeginTrouble(fault.node, fault.peer);
  }
  const int64_t length_ns = LengthOf(fault, scene_.plan.endpoint);
  if (length_ns == 0) return;
  ++under_way_;
  if (IsOfHost(fault.kind)) busy_[fault.node] = true;
  Trouble(fault, /*begins=*/true);
  scene_.simulation->After(length_ns, [this, fault] {
    --under_way_;
    if (IsOfHost(fault.kind)) busy_[fault.node] = false;
    scene_.trail.Add(scene_.now_ns(), fault.node, fault.peer, Step::kHealed,
                     static_cast<uint64_t>(fault.kind), 0);
    Undo(fault);
    Trouble(fault, /*begins=*/false);
  });
}

void FaultDriver::Trouble(const Fault& fault, bool begins) {
  const auto tell_of = [&](uint32_t node, uint32_t peer) {
    if (begins) return scene_.ledger.BeginTrouble(node, peer);
    scene_.ledger.EndTrouble(node, peer);
  };
  const auto tell = [&](uint32_t peer) { tell_of(fault.node, peer); };
  if (IsRate(fault.kind)) {
    // Losses are everywhere.
    for (uint32_t node = 0; node < nodes_.size(); ++node) {
      if (!MayEndPeers(fault, scene_.plan.endpoint.dead_peer_ns, scene_.plan.rc[node])) continue;
      for (uint32_t peer = 0; peer < nodes_.size(); ++peer) {
        if (peer != node) tell_of(node, peer);
      }
    }
    return;
  }
  if (!MayEndPeers(fault, scene_.plan.endpoint.dead_peer_ns, scene_.plan.rc[fault.node])) return;
  if (!IsOfHost(fault.kind) && fault.kind != FaultKind::kDeadDci) return tell(fault.peer);
  for (uint32_t peer = 0; peer < nodes_.size(); ++peer) {
    if (peer != fault.node) tell(peer);
  }
}

// Two failures in a row at most, then all that was under way must have been acknowledged, the messages that
// failed included: more would be reason enough to give the peer up.
bool FaultDriver::BeginRequestError(const Fault& fault) {
  if (scene_.simulation->HasRule(fault.node, fault.peer)) return false;
  const uint32_t progress = scene_.ledger.acknowledged_between(fault.node, fault.peer);
  const uint32_t settled = settled_[fault.node * nodes_.size() + fault.peer];
  if (progress <= settled + scene_.plan.endpoint.credits_per_peer + 8) return false;
  failing_.emplace_back(fault.node, fault.peer);
  constexpr ibv_wc_status kStatuses[] = {IBV_WC_RETRY_EXC_ERR, IBV_WC_RETRY_EXC_ERR,
                                         IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ACCESS_ERR,
                                         IBV_WC_REM_OP_ERR};
  const uint64_t draw = fault.at_message * 0x9e3779b97f4a7c15u >> 32;
  RequestRule rule;
  rule.node = fault.node;
  rule.peer = fault.peer;
  rule.count = 1 + draw % 2;
  rule.skip = draw / 2 % 4;
  rule.status = kStatuses[draw / 8 % 5];
  rule.carried_out = draw / 40 % 2 == 0;
  if (rule.carried_out && scene_.plan.options.late && draw / 80 % 2 == 0) {
    rule.lands_late_ns =
        static_cast<int64_t>(draw / 160 % static_cast<uint64_t>(scene_.plan.endpoint.dead_peer_ns));
  }
  scene_.simulation->FailNext(rule);
  return true;
}

// A host needs a while to find one. An answer that stood in one, then failed, then stood in a second one comes after its time;
// and so does one that waited until its host went on, and then stood in one.
bool FaultDriver::BeginDeadDci(const Fault& fault) {
  Trials& trials = trials_[fault.node];
  const int64_t now_ns = scene_.now_ns();
  const int64_t since_ns = now_ns - 2 * scene_.plan.endpoint.dead_peer_ns;
  if (trials.stalled_until_ns > since_ns) return false;
  if (trials.dead_dci_ns > since_ns && trials.failing_ns > since_ns) return false;
  trials.dead_dci_ns = now_ns;
  return scene_.simulation->MakeDciDeadInRts(fault.node,
                                             fault.amount % (scene_.plan.endpoint.dci_count + 1));
}

void FaultDriver::Settle() {
  std::erase_if(failing_, [this](const auto& pair) {
    const auto [node, peer] = pair;
    trials_[node].failing_ns = scene_.now_ns();
    if (scene_.simulation->HasRule(node, peer)) return false;
    settled_[node * nodes_.size() + peer] = scene_.ledger.acknowledged_between(node, peer);
    if (scene_.plan.rc[node] && !RetriesForLong(scene_.plan.network.dials)) {
      scene_.ledger.EndTrouble(node, peer);
    }
    return true;
  });
}

bool FaultDriver::Do(const Fault& fault) {
  softdc::sim::Simulation& simulation = *scene_.simulation;
  Node& node = *nodes_[fault.node];
  if (IsRate(fault.kind)) {
    rates_.Begin(fault, simulation);
    return true;
  }
  switch (fault.kind) {
    case FaultKind::kPause:
      simulation.Pause(fault.node);
      return true;
    case FaultKind::kStall:
      if (trials_[fault.node].dead_dci_ns >
          scene_.now_ns() - 2 * scene_.plan.endpoint.dead_peer_ns) {
        return false;  // as in BeginDeadDci()
      }
      trials_[fault.node].stalled_until_ns = scene_.now_ns() + fault.length_ns;
      node.Stall(scene_.now_ns() + fault.length_ns);
      return true;
    case FaultKind::kKill:
      simulation.Kill(fault.node);
      node.Bury();
      return true;
    case FaultKind::kRequestError:
      return BeginRequestError(fault);
    case FaultKind::kOldCompletions:
      return scene_.witness.RepeatCompletions(fault.node, fault.amount);
    case FaultKind::kDeadDci:
      return BeginDeadDci(fault);
    case FaultKind::kCutLink:
      simulation.CutLink(fault.node, fault.peer);
      return true;
    case FaultKind::kPortDown:
      simulation.PortDown(fault.node);
      return true;
    case FaultKind::kUnplug:
      simulation.Unplug(fault.node);
      return true;
    case FaultKind::kFatal:
      simulation.DeviceFatal(fault.node);
      return true;
    default:
      return false;
  }
}

void FaultDriver::Undo(const Fault& fault) {
  softdc::sim::Simulation& simulation = *scene_.simulation;
  Node& node = *nodes_[fault.node];
  if (IsRate(fault.kind)) return rates_.End(fault, simulation);
  switch (fault.kind) {
    case FaultKind::kPause:
      return simulation.Resume(fault.node);
    case FaultKind::kKill:
      simulation.Revive(fault.node);
      return node.Start();
    case FaultKind::kCutLink:
      return simulation.HealLink(fault.node, fault.peer);
    case FaultKind::kPortDown:
      return simulation.PortUp(fault.node);
    case FaultKind::kUnplug:
      node.Bury();
      simulation.Plug(fault.node);
      return node.StartAgain();
    case FaultKind::kFatal:
      node.Bury();
      return node.Start();
    default:
      return;
  }
}

}  // namespace sluice::simulation
