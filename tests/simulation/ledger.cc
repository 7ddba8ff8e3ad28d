// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/ledger.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::simulation {
namespace {

constexpr char kDelivery[] = "1 Delivery";
constexpr char kIsolation[] = "3 Isolation";

}  // namespace

uint32_t Ledger::Up(uint32_t node, uint32_t peer) {
  const auto index = static_cast<uint32_t>(ends_.size());
  PairState& pair = Pair(node, peer);
  ends_.push_back({.node = node, .peer = peer, .excused = pair.troubles != 0});
  pair.living.push_back(index);
  return index;
}

void Ledger::Delivered(uint32_t index, uint32_t from, uint32_t number) {
  ++delivered_;
  End& end = ends_[index];
  const auto name = [&] {
    return absl::StrCat("message ", number, " of end ", from, " at end ", index, " of host ",
                        end.node);
  };
  if (from >= ends_.size())
    return Break(kDelivery, name() + ": nobody sent it", end.node, end.peer);
  End& other = ends_[from];
  if (other.peer != end.node || other.node != end.peer || !end.up) {
    return Break(kDelivery, name() + ": misdelivered", end.node, end.peer);
  }
  if (end.other == kNoEnd && (other.other == kNoEnd || other.other == index)) {
    end.other = from;
    other.other = index;
  }
  if (end.other != from) {
    return Break(kDelivery,
                 absl::StrCat(name(), ": delivered to another incarnation; it belongs to end ",
                              other.other, ", this one to end ", end.other),
                 end.node, end.peer);
  }
  if (number < end.delivered) return Break(kDelivery, name() + ": repeated", end.node, end.peer);
  if (number > end.delivered) {
    return Break(kDelivery,
                 absl::StrCat(name(), ": lost or reordered, ", end.delivered, " is next"), end.node,
                 end.peer);
  }
  if (number >= other.sent) {
    return Break(kDelivery, name() + ": not sent yet", end.node, end.peer);
  }
  ++end.delivered;
}

void Ledger::Acknowledged(uint32_t index, uint32_t total) {
  End& end = ends_[index];
  const uint32_t delivered = end.other == kNoEnd ? 0 : ends_[end.other].delivered;
  if (total < end.acknowledged || total > delivered) {
    Break(kDelivery,
          absl::StrCat("end ", index, " is told that ", total,
                       " messages were delivered; there were ", delivered, ", and it was told of ",
                       end.acknowledged),
          end.node, end.peer);
  }
  Pair(end.node, end.peer).acknowledged += total - end.acknowledged;
  end.acknowledged = total;
}

void Ledger::Down(uint32_t index, const std::string& why, bool announced) {
  End& end = ends_[index];
  end.up = false;
  std::erase(Pair(end.node, end.peer).living, index);
  if (!announced) ++downs_;
  // One that never carried anything is a handshake that failed late.
  const bool used = end.other != kNoEnd;
  // The other one's end has been judged where it ended, also if that was before this one came up.
  const bool first = used && ends_[end.other].up;
  if (!announced && !end.excused && first) {
    Break(kIsolation,
          absl::StrCat("end ", index, " of host ", end.node, " lost host ", end.peer,
                       " without a cause: ", why),
          end.node, end.peer);
  }
  ExcuseLiving(end.peer, end.node);
}

void Ledger::ExcuseLiving(uint32_t node, uint32_t peer) {
  for (const uint32_t index : Pair(node, peer).living) ends_[index].excused = true;
}

void Ledger::BeginTrouble(uint32_t node, uint32_t peer) {
  for (const auto& [a, b] : {std::pair(node, peer), std::pair(peer, node)}) {
    ++Pair(a, b).troubles;
    ExcuseLiving(a, b);
  }
}

void Ledger::EndTrouble(uint32_t node, uint32_t peer) {
  --Pair(node, peer).troubles;
  --Pair(peer, node).troubles;
}

void Ledger::CheckEnd(const End& end) {
  if (end.other == kNoEnd) return;
  const End& other = ends_[end.other];
  if (end.acknowledged > other.delivered || other.delivered > end.sent) {
    Break(kDelivery,
          absl::StrCat("host ", end.node, " sent ", end.sent, " messages, ", other.delivered,
                       " were delivered, ", end.acknowledged, " are acknowledged"),
          end.node, end.peer);
  }
}

void Ledger::Sweep() {
  for (const PairState& pair : pairs_) {
    for (const uint32_t index : pair.living) CheckEnd(ends_[index]);
  }
}

bool Ledger::IsMissing(const End& end) const {
  const uint32_t delivered = end.other == kNoEnd ? 0 : ends_[end.other].delivered;
  return end.sent != delivered || end.acknowledged != delivered;
}

bool Ledger::AllArrived() const {
  for (const PairState& pair : pairs_) {
    for (const uint32_t index : pair.living) {
      if (IsMissing(ends_[index])) return false;
    }
  }
  return true;
}

void Ledger::BreakMissing() {
  for (const PairState& pair : pairs_) {
    for (const uint32_t index : pair.living) {
      const End& end = ends_[index];
      if (!IsMissing(end)) continue;
      const uint32_t delivered = end.other == kNoEnd ? 0 : ends_[end.other].delivered;
      Break(kDelivery,
            absl::StrCat("end ", index, " of host ", end.node, " sent ", end.sent,
                         " messages to host ", end.peer, ", ", delivered, " were delivered and ",
                         end.acknowledged, " acknowledged"),
            end.node, end.peer);
    }
  }
}

bool Ledger::Connected(uint32_t node, uint32_t peer) const {
  for (const uint32_t index : Pair(node, peer).living) {
    const End& end = ends_[index];
    if (end.other != kNoEnd && ends_[end.other].up) return true;
  }
  return false;
}

void Ledger::Break(std::string invariant, std::string what, uint32_t node, uint32_t peer) {
  if (violations_.size() < 8) {
    violations_.push_back({std::move(invariant), std::move(what), node, peer});
  }
}

}  // namespace sluice::simulation
