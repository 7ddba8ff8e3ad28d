// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/process.h"

#include <utility>

namespace sluice::nodes {

Process::Process(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed,
                 const Plan& plan, Ledger* ledger)
    : Host(simulation, node, seed),
      plan_(plan),
      ledger_(ledger),
      dice_(seed * 7 + node),
      tap_(&valve_, &ledger->report()) {}

Process::~Process() {
  const As as(simulation_, node_);
  valve_.Free();
  device_.reset();
}

void Process::Open(const endpoint::Options& options, endpoint::Handler* engine) {
  const As as(simulation_, node_);
  valve_.set_engine(engine);
  if (plan_.habits.leave_ppm != 0) {
    valve_.set_meddler([this](endpoint::PeerId peer) { Meddle(peer); });
  }
  auto endpoint = endpoint::CreateEndpoint(options, *device_, clock_, random_, commands_, &tap_);
  if (!endpoint.ok()) return ledger_->Break(endpoint.status().ToString());
  valve_.Attach(std::move(*endpoint));
}

void Process::Meddle(endpoint::PeerId peer) {
  if (!quiet() && One(plan_.habits.leave_ppm)) valve_.Disconnect(peer);
}

void Process::Close() {
  if (closed()) return;
  const As as(simulation_, node_);
  EndEngine();
  valve_.Close();
  Acted();
}

int Process::Poll() {
  const int done = valve_.shut() ? valve_.Poll() : PollEngine();
  if (done > 0 && on_work_ && !valve_.shut()) on_work_();
  return done;
}

bool Process::gone() const {
  const endpoint::ConnectionCounts counts = valve_.Connections();
  return closed() && counts.numbers_live == 0;
}

void Process::Die() {
  dead_ = true;
  Close();
  Stop();
}

void Process::Bury() {
  const As as(simulation_, node_);
  for (int i = 0; i < 4; ++i) {
    valve_.PrepareToSleep();
    valve_.Poll();
  }
}

}  // namespace sluice::nodes
