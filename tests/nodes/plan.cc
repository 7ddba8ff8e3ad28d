// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "transport/softdc/sim/random.h"

namespace sluice::nodes {
namespace {

using hostile::kMs;
using hostile::kUs;
using softdc::sim::Random;

template <typename T, size_t n>
T OneOf(const T (&choices)[n], Random& random) {
  return choices[random.Below(n)];
}

peer::SecretSource Holds(const char* secret) {
  return [secret] { return std::vector<std::string>{secret}; };
}

void DrawNetwork(Plan* plan, Random& random) {
  softdc::sim::Options& network = plan->network;
  network.seed = random.Next();
  network.nodes = plan->servers + plan->clients + 1;
  network.jitter_ns = OneOf({0, 100, 2'000}, random);
  network.arena_bytes = uint64_t{32} << 20;
  const bool streams = random.Below(5) != 0;
  if (network.dials == softdc::Dials()) network.dials.streams.enabled = streams;
  network.dials.cm.retry_ns = 10 * kMs;
}

void DrawEndpoint(Plan* plan, Random& random) {
  endpoint::Options& options = plan->endpoint;
  options.max_message_bytes = 2'048;
  options.credits_per_peer = OneOf({2u, 4u, 16u}, random);
  plan->client_credits = OneOf({2u, 4u, 16u}, random);
  options.max_peers = plan->clients + 2 + static_cast<uint32_t>(random.Below(6));
  options.srq_size = 512;
  options.send_buffers = OneOf({64u, 256u}, random);
  options.dci_count = 1 + static_cast<uint32_t>(random.Below(2));
  options.dci_depth = OneOf({64u, 256u}, random);
  options.dead_peer_ns = OneOf({4, 10}, random) * kMs;
  options.keepalive_ns = 50 * kMs;
  options.accept_timeout_ns = 200 * kMs;
  options.failed_handshakes_per_second = 100'000;
  options.lane_memory_bytes = random.Below(2) == 0 ? 0 : 64 << 10;
  options.lane_slots = 16;
  options.lane_after_messages = 8;
  options.large_memory_bytes = 8 << 20;
  if (random.Below(2) == 0) options.max_large_bytes = 1 << 20;
  // With RC queue pairs an endpoint refuses several tenants.
  if (random.Below(3) != 0 || !plan->network.dials.features.dc) {
    options.secrets = Holds(kSecret);
    return;
  }
  options.tenants = {{"one", Holds(kSecret), options.srq_size, options.max_peers},
                     {"two", Holds(kOtherSecret), options.srq_size, options.max_peers}};
}

void DrawHabits(Plan* plan, Random& random) {
  Habits& habits = plan->habits;
  habits.period_ns = OneOf({20, 60, 200}, random) * kUs;
  if (plan->endpoint.max_large_bytes != 0) habits.large_bytes = OneOf({9'000, 40'000}, random);
  habits.attachments_ppm = OneOf({0, 200'000}, random);
  habits.short_deadline_ppm = OneOf({0, 200'000}, random);
  habits.cancel_ppm = OneOf({0, 100'000}, random);
  habits.cancel_first_ppm = OneOf({0, 50'000}, random);
  habits.stream_ppm = OneOf({0, 300'000, 600'000}, random);
  habits.refuse_ppm = OneOf({0, 50'000}, random);
  habits.fail_ppm = OneOf({0, 100'000}, random);
  habits.nested_ppm = OneOf({0, 100'000}, random);
  habits.leave_ppm = OneOf({0, 0, 300, 3'000}, random);
}

void DrawHappenings(Plan* plan, Random& random) {
  const auto draw = [&](Happening::What what, uint32_t most, uint32_t first, uint32_t count) {
    for (uint64_t i = random.Below(most + 1); i > 0; --i) {
      Happening one;
      one.what = what;
      one.at_ns = static_cast<int64_t>(random.Below(static_cast<uint64_t>(plan->work_ns)));
      one.which = first + static_cast<uint32_t>(random.Below(count));
      plan->happenings.push_back(one);
    }
  };
  const uint32_t servers = plan->servers * plan->pollers;
  if (random.Below(2) == 0) draw(Happening::What::kCloseClient, 4, servers, plan->clients);
  if (random.Below(2) == 0) draw(Happening::What::kServers, 8, servers, plan->clients);
  if (random.Below(3) == 0) draw(Happening::What::kCloseServer, 2, 0, plan->servers);
  if (random.Below(3) == 0) draw(Happening::What::kDrain, 2, 0, plan->servers);
  plan->disruptive = !plan->happenings.empty() || plan->habits.leave_ppm != 0;
  if (random.Below(2) == 0) {
    for (uint64_t i = 1 + random.Below(12); i > 0; --i) {
      Happening one;
      one.fault = simulation::DrawFault(simulation::FaultSet::kAll, plan->servers + plan->clients,
                                        static_cast<uint64_t>(plan->work_ns),
                                        plan->endpoint.dead_peer_ns, random);
      one.at_ns = static_cast<int64_t>(one.fault.at_message);
      plan->happenings.push_back(one);
    }
    plan->has_faults = plan->disruptive = true;
  }
  std::stable_sort(plan->happenings.begin(), plan->happenings.end(),
                   [](const Happening& a, const Happening& b) { return a.at_ns < b.at_ns; });
}

// Nothing that a program does ends a call with an error. Loops sleep, so that many calls take little time.
void LetCallsSucceed(Plan* plan) {
  Habits& habits = plan->habits;
  habits.short_deadline_ppm = habits.cancel_ppm = habits.cancel_first_ppm = 0;
  habits.refuse_ppm = habits.fail_ppm = habits.nested_ppm = habits.leave_ppm = 0;
  habits.period_ns = 20 * kUs;
  plan->max_waiting_replies = 256;
  plan->disruptive = false;
  std::fill(plan->loops.begin(), plan->loops.end(), hostile::Loop::kSleeps);
}

}  // namespace

Plan MakePlan(const PlanOptions& options) {
  // Not the generator's own step: neighbours would be the same sequence, a step apart.
  Random random(options.seed * 0xd1342543de82ef95u + 0x40de);
  Plan plan;
  plan.seed = options.seed;
  plan.servers = 1 + static_cast<uint32_t>(random.Below(2));
  plan.pollers = random.Below(3) == 0 ? 2 : 1;
  plan.clients = 1 + static_cast<uint32_t>(random.Below(4));
  plan.work_ns = options.work_ns;
  DrawNetwork(&plan, random);
  if (options.rc) plan.network.dials.features.dc = false;
  DrawEndpoint(&plan, random);
  DrawHabits(&plan, random);
  plan.attempts = OneOf({1u, 2u, 4u}, random);
  plan.max_waiting_replies = OneOf({2u, 8u, 256u}, random);
  // Clients may have more calls whose replies find no credit.
  if (plan.max_waiting_replies < 256) plan.disruptive = true;
  for (uint32_t i = 0; i < plan.servers * plan.pollers + plan.clients + 1; ++i) {
    plan.loops.push_back(random.Below(2) == 0 ? hostile::Loop::kSpins : hostile::Loop::kSleeps);
  }
  if (options.unary) {
    plan.habits.stream_ppm = plan.habits.attachments_ppm = plan.habits.large_bytes = 0;
  }
  if (options.loss_ppm != 0) {
    plan.network.faults.messages.loss_ppm = plan.network.faults.messages.ack_loss_ppm =
        options.loss_ppm;
    LetCallsSucceed(&plan);
    return plan;
  }
  const bool overflows = plan.disruptive;
  DrawHappenings(&plan, random);
  plan.disruptive = plan.disruptive || overflows;
  return plan;
}

std::string ToString(const Plan& plan) {
  const Habits& habits = plan.habits;
  std::string text = absl::StrCat(
      "seed ", plan.seed, ": ", plan.servers, " servers of ", plan.pollers, " pollers, ",
      plan.clients, " clients; streams ", plan.network.dials.streams.enabled ? "on" : "off",
      plan.network.dials.features.dc ? "" : ", no DC", ", credits ", plan.endpoint.credits_per_peer,
      " and ", plan.client_credits, ", ", plan.endpoint.send_buffers, " send buffers, ",
      plan.endpoint.dci_count, " DCIs of ", plan.endpoint.dci_depth, ", max_peers ",
      plan.endpoint.max_peers, ", lanes ", plan.endpoint.lane_memory_bytes != 0 ? "on" : "off",
      ", dead_peer ", plan.endpoint.dead_peer_ns / kMs, " ms, ", plan.tenants() ? 2 : 0,
      " tenants; ", plan.attempts, " attempts, backlog ", plan.max_waiting_replies,
      "; a call every ", habits.period_ns / kUs, " us, large ", habits.large_bytes,
      "; ppm: attachments ", habits.attachments_ppm, ", short deadlines ",
      habits.short_deadline_ppm, ", cancels ", habits.cancel_ppm, " and ", habits.cancel_first_ppm,
      ", streams ", habits.stream_ppm, ", refused ", habits.refuse_ppm, ", failed ",
      habits.fail_ppm, ", nested ", habits.nested_ppm, ", left ", habits.leave_ppm, "; loops ");
  for (const hostile::Loop loop : plan.loops) {
    absl::StrAppend(&text, loop == hostile::Loop::kSpins ? "p" : "s");
  }
  text += "\n";
  constexpr const char* kNames[] = {"", "close client", "close server", "drain", "servers"};
  for (const Happening& one : plan.happenings) {
    absl::StrAppend(&text, "  ", one.at_ns / kUs, " us: ");
    if (one.what == Happening::What::kFault) {
      absl::StrAppend(&text, simulation::ToString(one.fault), "\n");
    } else {
      absl::StrAppend(&text, kNames[static_cast<size_t>(one.what)], " ", one.which, "\n");
    }
  }
  return text;
}

}  // namespace sluice::nodes
