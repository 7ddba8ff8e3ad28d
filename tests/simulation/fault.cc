// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/fault.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {
namespace {

constexpr int64_t kUs = 1'000;

// Lengths are between the two, in parts of a thousand of dead_peer_ns, or as they stand.
struct Kind {
  const char* name;
  uint32_t weight;
  bool harmless;
  int64_t least_permille;
  int64_t most_permille;
};

constexpr std::array<Kind, static_cast<size_t>(FaultKind::kCount)> kKinds = {{
    {"delay", 3, true, 20, 500},
    {"pause", 3, true, 1, 30},
    {"stall", 4, true, 1, 800},
    {"cm_trouble", 2, true, 100, 3'000},
    {"kill", 2, true, 10, 2'000},
    {"loss", 4, false, 20, 500},
    {"answer_loss", 4, false, 20, 500},
    {"request_error", 30, false, 0, 0},
    {"dead_dci", 2, false, 0, 0},
    {"cut_link", 3, false, 10, 2'500},
    {"port_down", 1, false, 10, 2'500},
    {"unplug", 1, false, 100, 1'000},
    {"fatal", 1, false, 100, 1'000},
    {"old_completions", 0, false, 0, 0},
}};

const Kind& Of(FaultKind kind) { return kKinds[static_cast<size_t>(kind)]; }

}  // namespace

const char* Name(FaultKind kind) { return Of(kind).name; }

std::string ToString(const Fault& fault) {
  return absl::StrCat(Name(fault.kind), " node ", fault.node, " peer ", fault.peer, " at message ",
                      fault.at_message, " for ", fault.length_ns / kUs, " us, amount ",
                      fault.amount);
}

Fault DrawFault(FaultSet set, uint32_t nodes, uint64_t messages, int64_t dead_peer_ns,
                softdc::sim::Random& random) {
  const auto allowed = [set](const Kind& kind) { return set == FaultSet::kAll || kind.harmless; };
  uint32_t weights = 0;
  for (const Kind& kind : kKinds) weights += allowed(kind) ? kind.weight : 0;
  uint64_t at = random.Below(weights);
  size_t which = 0;
  for (; which < kKinds.size(); ++which) {
    if (!allowed(kKinds[which])) continue;
    if (at < kKinds[which].weight) break;
    at -= kKinds[which].weight;
  }
  const Kind& kind = kKinds[which];
  Fault fault;
  fault.kind = static_cast<FaultKind>(which);
  fault.node = static_cast<uint32_t>(random.Below(nodes));
  fault.peer = static_cast<uint32_t>((fault.node + 1 + random.Below(nodes - 1)) % nodes);
  fault.at_message = random.Below(messages);
  const auto span = static_cast<uint64_t>(kind.most_permille - kind.least_permille + 1);
  fault.length_ns =
      dead_peer_ns / 1'000 * (kind.least_permille + static_cast<int64_t>(random.Below(span)));
  constexpr uint32_t kRates[] = {1'000, 10'000, 50'000, 200'000};
  fault.amount = kRates[random.Below(4)];
  return fault;
}

Fault DrawLateFault(uint32_t nodes, uint64_t messages, softdc::sim::Random& random) {
  Fault fault;
  fault.kind = FaultKind::kOldCompletions;
  fault.node = fault.peer = static_cast<uint32_t>(random.Below(nodes));
  fault.at_message = random.Below(messages);
  fault.amount = 1 + static_cast<uint32_t>(random.Below(32));
  return fault;
}

bool MayEndPeers(const Fault& fault, int64_t dead_peer_ns, bool rc) {
  switch (fault.kind) {
    case FaultKind::kKill:
    case FaultKind::kUnplug:
    case FaultKind::kFatal:
    case FaultKind::kDeadDci:
      return true;
    case FaultKind::kCutLink:
    case FaultKind::kPortDown:
    case FaultKind::kPause:
      // One attempt of three takes a sixth of it at least, and requests that fail by themselves may be the
      // two others.
      return fault.length_ns >= dead_peer_ns / 6;
    case FaultKind::kLoss:
    case FaultKind::kAnswerLoss:
      // A request fails if its eight tries are lost, and with DC only the third failure in a row ends its peer.
      return rc && fault.amount >= 50'000;
    default:
      return false;
  }
}

}  // namespace sluice::simulation
