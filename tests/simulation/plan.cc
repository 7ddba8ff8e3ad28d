// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {
namespace {

using softdc::sim::Random;

constexpr int64_t kUs = 1'000;
constexpr int64_t kMs = 1'000'000;

template <typename T, size_t n>
T OneOf(const T (&choices)[n], Random& random) {
  return choices[random.Below(n)];
}

softdc::sim::Options DrawNetwork(DeviceKind device, Random& random) {
  constexpr int64_t kJitterNs[] = {0, 100, 2'000};
  constexpr uint8_t kLogConcurrent[] = {1, 3, 6};
  constexpr uint8_t kLogErrored[] = {0, 1, 4};
  softdc::sim::Options network;
  network.seed = random.Next();
  network.nodes = 2 + static_cast<uint32_t>(random.Below(7));
  // Of each kind there are two at least.
  if (device == DeviceKind::kMixed) network.nodes = std::max(network.nodes, 4u);
  network.jitter_ns = OneOf(kJitterNs, random);
  network.arena_bytes = uint64_t{16} << 20;
  softdc::Dials& dials = network.dials;
  dials.streams.enabled = random.Below(5) != 0;
  dials.streams.max_log_concurrent = OneOf(kLogConcurrent, random);
  dials.streams.max_log_errored =
      std::min(OneOf(kLogErrored, random), dials.streams.max_log_concurrent);
  constexpr softdc::InOrder kOrders[] = {softdc::InOrder::kWholeMessage,
                                         softdc::InOrder::kWholeMessage,
                                         softdc::InOrder::kBlocks128, softdc::InOrder::kNone};
  dials.features.in_order = OneOf(kOrders, random);
  dials.features.ece = random.Below(2) != 0;
  dials.features.ah_mapping = random.Below(2) != 0;
  // A seed's other choices stay what they are.
  if (softdc::DialsOfThisProcess() != softdc::Dials()) dials = softdc::DialsOfThisProcess();
  dials.cm.retry_ns = 20 * kMs;
  return network;
}

endpoint::Options DrawEndpoint(const softdc::sim::Options& network, Random& random) {
  constexpr uint32_t kBytes[] = {256, 1'024, 4'096};
  constexpr uint32_t kCredits[] = {2, 4, 16, 64};
  constexpr uint32_t kBuffers[] = {64, 128, 512};
  constexpr uint32_t kDepths[] = {64, 64, 256};
  constexpr int64_t kDeadMs[] = {4, 10, 20};
  endpoint::Options options;
  options.max_message_bytes = OneOf(kBytes, random);
  options.credits_per_peer = OneOf(kCredits, random);
  options.max_peers = network.nodes * 4;
  options.srq_size = std::max<uint32_t>(
      64, options.credits_per_peer * (2 + 2 * static_cast<uint32_t>(random.Below(network.nodes))));
  options.send_buffers = OneOf(kBuffers, random);
  options.dci_count = 1 + static_cast<uint32_t>(random.Below(3));
  options.dci_depth = OneOf(kDepths, random);
  options.dead_peer_ns = OneOf(kDeadMs, random) * kMs;
  options.keepalive_ns = random.Below(3) == 0 ? 0 : 50 * kMs;
  options.accept_timeout_ns = 200 * kMs;
  options.failed_handshakes_per_second = 10'000;
  return options;
}

Workload DrawWorkload(Random& random) {
  constexpr uint32_t kUsualBytes[] = {32, 128, 512};
  constexpr uint32_t kBursts[] = {1, 16, 64, 256};
  constexpr int64_t kPausesUs[] = {10, 100, 500};
  constexpr uint32_t kReplies[] = {0, 100'000, 500'000};
  constexpr uint32_t kReports[] = {0, 10'000, 200'000};
  Workload workload;
  workload.usual_bytes = OneOf(kUsualBytes, random);
  workload.long_ppm = OneOf({1'000u, 10'000u, 50'000u}, random);
  workload.most_in_burst = OneOf(kBursts, random);
  workload.most_pause_ns = OneOf(kPausesUs, random) * kUs;
  workload.reply_ppm = OneOf(kReplies, random);
  workload.report_ppm = OneOf(kReports, random);
  return workload;
}

// Drawn apart: a seed's other choices stay what they are.
void DrawDevices(Plan* plan) {
  Random random(plan->options.seed * 0x9e3779b97f4a7c15u + 0x4c43);
  const uint32_t nodes = plan->network.nodes;
  plan->rc.assign(nodes, false);
  plan->asks_rc.assign(nodes, false);
  for (uint32_t node = 0; node < nodes; ++node) {
    const DeviceKind kind = plan->options.device;
    const bool drawn = random.Below(2) != 0;
    const bool has_dc = random.Below(2) != 0;
    const bool rc = kind == DeviceKind::kRc ||
                    (kind == DeviceKind::kMixed && (node < 4 ? node % 2 != 0 : drawn));
    softdc::Dials dials = plan->network.dials;
    plan->rc[node] = rc || !dials.features.dc;
    plan->asks_rc[node] = rc && has_dc && dials.features.dc;
    if (!rc || plan->asks_rc[node]) continue;
    dials.features.dc = false;
    plan->network.dials_by_node[node] = dials;
  }
  if (plan->options.device != DeviceKind::kMixed) return;
  // Each host has a peer of its kind, and some have more; some try one of the other kind.
  plan->pairs.clear();
  for (uint32_t a = 0; a < nodes; ++a) {
    bool has_peer = false;
    for (uint32_t b = a + 1; b < nodes; ++b) {
      const bool alike = plan->rc[a] == plan->rc[b];
      const bool skipped = random.Below(2) == 0;
      const auto pair = random.Below(2) == 0 ? std::pair(a, b) : std::pair(b, a);
      if (!alike && !skipped) plan->unlike.push_back(pair);
      if (!alike || (has_peer && skipped)) continue;
      plan->pairs.push_back(pair);
      has_peer = true;
    }
  }
}

const char* Name(DeviceKind kind) {
  constexpr const char* kNames[] = {"DC", "RC", "DC and RC"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace

Plan MakePlan(const PlanOptions& options) {
  Random random(options.seed * 0x9e3779b97f4a7c15u + 0x51);
  Plan plan;
  plan.options = options;
  plan.stop_after = options.messages;
  plan.network = DrawNetwork(options.device, random);
  plan.endpoint = DrawEndpoint(plan.network, random);
  // A port that is down swallows RDMA_CM's last word as well: then somebody has to ask.
  if (options.faults == FaultSet::kAll) plan.endpoint.keepalive_ns = 50 * kMs;
  plan.workload = DrawWorkload(random);
  plan.workload.leave_ppm = options.leaves ? 2'000 : 0;
  plan.poll_delay_ns = OneOf({100, 1'000, 5'000}, random);
  plan.nap_ns = OneOf({20 * kUs, 200 * kUs}, random);
  const uint32_t nodes = plan.network.nodes;
  for (uint32_t a = 0; a < nodes; ++a) {
    for (uint32_t b = a + 1; b < nodes; ++b) {
      if (b != a + 1 && random.Below(2) == 0) continue;
      plan.pairs.push_back(random.Below(2) == 0 ? std::pair(a, b) : std::pair(b, a));
    }
  }
  DrawDevices(&plan);
  if (options.faults != FaultSet::kNone) {
    const uint64_t count = random.Below(1 + std::min<uint64_t>(200, options.messages / 1'000 + 4));
    for (uint64_t i = 0; i < count; ++i) {
      plan.faults.push_back(
          DrawFault(options.faults, nodes, options.messages, plan.endpoint.dead_peer_ns, random));
    }
    // Drawn apart: the others of a seed are the same with and without them.
    if (options.faults == FaultSet::kAll && options.late) {
      Random late(options.seed * 0x9e3779b97f4a7c15u + 0x1a7e);
      for (uint64_t i = late.Below(2 + count / 4); i > 0; --i) {
        plan.faults.push_back(DrawLateFault(nodes, options.messages, late));
      }
    }
    std::stable_sort(plan.faults.begin(), plan.faults.end(),
                     [](const Fault& a, const Fault& b) { return a.at_message < b.at_message; });
  }
  return plan;
}

std::string ToString(const Plan& plan) {
  const softdc::Dials& dials = plan.network.dials;
  std::string text = absl::StrCat(
      "seed ", plan.options.seed, ": ", plan.network.nodes, " hosts, ", plan.pairs.size(),
      " pairs, ", plan.stop_after, " messages; devices with ", Name(plan.options.device),
      "; streams ", dials.streams.enabled ? "on" : "off", ", log_concurrent ",
      dials.streams.max_log_concurrent, ", log_errored ", dials.streams.max_log_errored, "; ",
      plan.endpoint.dci_count, " DCIs of ", plan.endpoint.dci_depth, ", ",
      plan.endpoint.credits_per_peer, " credits, ", plan.endpoint.send_buffers,
      " send buffers, dead_peer ", plan.endpoint.dead_peer_ns / kMs, " ms, keepalive ",
      plan.endpoint.keepalive_ns / kMs, " ms; bursts of up to ", plan.workload.most_in_burst, "; ",
      plan.faults.size(), " faults\n");
  for (size_t i = 0; i < plan.faults.size(); ++i) {
    absl::StrAppend(&text, "  fault ", i, ": ", ToString(plan.faults[i]), "\n");
  }
  return text;
}

}  // namespace sluice::simulation
