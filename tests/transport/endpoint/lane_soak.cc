// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/endpoint/lane_soak.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/transport/endpoint/lane_world.h"

namespace sluice::endpoint {
namespace {

using softdc::InOrder;
using softdc::sim::Simulation;

// A device that says too much.
const verbs::VerbsApi& BoastingTable() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.query_qp_data_in_order = [](ibv_qp*, ibv_wr_opcode, uint32_t) { return 1; };
    return api;
  }();
  return table;
}

softdc::sim::Options SimOptions(const SoakPlan& plan, base::Random& random) {
  softdc::sim::Options options;
  options.seed = plan.seed;
  options.log = softdc::sim::LogMode::kDigest;
  options.dials.features.in_order = plan.promise;
  options.jitter_ns = static_cast<int64_t>(random.Below(2'000));
  if (!plan.faults) return options;
  options.faults.messages.loss_ppm = static_cast<uint32_t>(random.Below(200));
  options.faults.messages.ack_loss_ppm = static_cast<uint32_t>(random.Below(200));
  options.faults.messages.delay_ppm = static_cast<uint32_t>(random.Below(2'000));
  options.faults.messages.delay_ns = 100'000;
  return options;
}

Options EndpointOptions(const SoakPlan& plan, base::Random& random) {
  Options options = LaneOptions();
  options.credits_per_peer = 4u << random.Below(4);
  options.lane_slots = 4u << random.Below(4);
  options.lane_slot_bytes = 128u << random.Below(3);
  options.lane_after_messages = 1u << random.Below(7);
  options.lanes_without_order = plan.promise == InOrder::kNone && !plan.forced;
  return options;
}

// Of virtual time, in which no message comes.
constexpr int64_t kMostStillNs = 5'000'000'000;

}  // namespace

SoakResult RunLaneSoak(const SoakPlan& plan) {
  base::SeededRandom random(plan.seed);
  SoakResult result;
  LaneWorld world(SimOptions(plan, random), EndpointOptions(plan, random),
                  plan.forced ? BoastingTable() : Simulation::Verbs());
  world.Connect(1);
  uint32_t left[2] = {plan.messages, plan.messages};
  const uint64_t burst = 1 + random.Below(8);
  const uint64_t sleep_every = 20 + random.Below(400);
  for (uint32_t i = 0; i < 2; ++i) {
    LaneHost& host = *world.hosts[i];
    host.on_look = [&, i] {
      const PeerId peer = host.program.ups[0];
      if (!host.program.Of(peer).up || random.Below(2) != 0) return;
      for (uint64_t n = random.Below(burst) + 1; n > 0 && left[i] != 0; --n) {
        const uint64_t most = random.Below(8) == 0 ? 1000 : 200;
        if (!host.program.Send(peer, static_cast<uint32_t>(8 + random.Below(most)))) break;
        --left[i];
      }
    };
  }
  int64_t fault_ns = world.simulation->NowNs();
  const auto done = [&] {
    return left[0] == 0 && left[1] == 0 && world.hosts[0]->program.received == plan.messages &&
           world.hosts[1]->program.received == plan.messages;
  };
  int still = 0;
  uint64_t received = 0;
  int64_t moved_ns = world.simulation->NowNs();
  while (!done()) {
    const bool bad = world.hosts[0]->program.gaps + world.hosts[1]->program.gaps +
                         world.hosts[0]->program.downs + world.hosts[1]->program.downs !=
                     0;
    if (bad || (!plan.forced && world.hosts[0]->program.torn + world.hosts[1]->program.torn != 0)) {
      break;
    }
    // One at a time: the third error in a row would end the peer.
    if (plan.faults && world.simulation->NowNs() >= fault_ns && !world.simulation->HasRule(0, 1) &&
        !world.simulation->HasRule(1, 0)) {
      fault_ns = world.simulation->NowNs() + static_cast<int64_t>(random.Below(3'000'000));
      const auto node = static_cast<uint32_t>(random.Below(2));
      softdc::sim::RequestRule rule{
          .node = node, .peer = 1 - node, .skip = static_cast<uint32_t>(random.Below(20))};
      if (random.Below(3) == 0) {
        rule.opcode = IBV_WR_SEND;
        rule.carried_out = random.Below(2) != 0;
      } else {
        const bool announced = plan.promise == InOrder::kNone;
        rule.opcode = announced ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
        if (!announced) rule.lands_late_ns = 1 + static_cast<int64_t>(random.Below(300'000));
      }
      world.simulation->FailNext(rule);
    }
    int busy = 0;
    for (auto& host : world.hosts) {
      if (host->asleep()) continue;
      const int count = host->Look(still != 0);
      busy += count;
      if (count == 0 && random.Below(sleep_every) == 0) result.sleeps += host->Sleep();
    }
    if (world.simulation->Step() || busy != 0) {
      still = 0;
      continue;
    }
    // Whoever has something to send wakes by itself; who waits must be woken.
    bool woken = false;
    for (uint32_t i = 0; i < 2; ++i) {
      if (left[i] == 0 || !world.hosts[i]->asleep()) continue;
      world.hosts[i]->WakeUp();
      woken = true;
    }
    // Nothing but time passes: timers of those who are awake.
    const uint64_t now_received =
        world.hosts[0]->program.received + world.hosts[1]->program.received;
    if (std::exchange(received, now_received) != now_received) {
      moved_ns = world.simulation->NowNs();
    }
    ++still;
    if (!woken && still < 1000 && world.simulation->NowNs() - moved_ns < kMostStillNs) {
      for (auto& host : world.hosts) host->LetTimePass();
    } else if (!woken) {
      result.wrong = "nothing moves any more:";
      for (uint32_t i = 0; i < 2; ++i) {
        LaneHost& host = *world.hosts[i];
        const Counters counts = host.Counts();
        absl::StrAppend(&result.wrong, " host ", i, " has ", left[i], " to send, ",
                        host.program.received, " received, ",
                        host.program.Of(host.program.ups[0]).kept.size(),
                        " not acknowledged, sleeps for ", host.asleep() ? host.sleep_limit_ns : 0,
                        ", watches ", counts.lanes_watched, " of ", counts.lanes, " lanes;");
      }
      break;
    }
  }
  for (auto& host : world.hosts) {
    const Program& program = host->program;
    const Counters counts = host->Counts();
    result.messages += program.received;
    result.torn += program.torn;
    result.downs += program.downs;
    result.through_lanes += counts.lane_received;
    result.announced += counts.lane_announced;
    result.lanes += counts.lanes_granted;
    result.lost += counts.lanes_lost;
    result.hushes += counts.lane_hushes;
    result.failures += counts.requests_failed;
    result.sent_again += counts.reposts;
    if (program.gaps + program.downs != 0 || (program.torn != 0 && !plan.forced)) {
      absl::StrAppend(&result.wrong, " torn ", program.torn, ", gaps ", program.gaps, ", downs ",
                      program.downs);
      for (const auto& peer : program.peers)
        absl::StrAppend(&result.wrong, " ", peer.down.ToString());
    }
    host->on_look = nullptr;
  }
  return result;
}

}  // namespace sluice::endpoint
