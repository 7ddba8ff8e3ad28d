// SPDX-License-Identifier: Apache-2.0
//
// Frees the memory that senders may still read, in rounds.
#include <algorithm>
#include <utility>

#include "transport/softdc/fabric_shm/inbound_link.h"
#include "transport/softdc/fabric_shm/inbound_links.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/shm/kill_point.h"

namespace sluice::softdc {

using shm::ControlKind;
using shm::ControlMessage;

void InboundLinks::StartRound() {
  std::vector<shm::Arena::Block> blocks = context_.arena().TakeRetired();
  if (blocks.empty()) return;
  rounds_.push_back({.number = ++last_round_, .blocks = std::move(blocks)});
  for (const auto& [id, link] : links_) AskToForget(*link);
  FreeForgotten();
}

void InboundLinks::AskToForget(Link& link) {
  // One request at a time, so that a stopped sender does not fill its socket.
  if (!link.journal || link.closed || link.shunned || link.asked_round != link.forgotten_round ||
      link.forgotten_round == last_round_) {
    return;
  }
  ControlMessage question;
  question.kind = ControlKind::kForget;
  question.number = last_round_;
  if (!Reply(link, question, {})) return;  // asked again in the next round
  link.asked_round = last_round_;
  SOFTDC_KILL_POINT(kForgetAsked);
}

bool InboundLinks::OnForgotten(Link& link, uint32_t round) {
  if (round != link.asked_round) return false;
  link.forgotten_round = round;
  AskToForget(link);
  FreeForgotten();
  return true;
}

void InboundLinks::FreeForgotten() {
  uint32_t forgotten = last_round_;
  for (const auto& [id, link] : links_) {
    if (link->journal && !link->closed) forgotten = std::min(forgotten, link->forgotten_round);
  }
  while (!rounds_.empty() && rounds_.front().number <= forgotten) {
    for (const shm::Arena::Block& block : rounds_.front().blocks) {
      context_.arena().Free(block.offset, block.size_bytes);
    }
    rounds_.pop_front();
  }
}

}  // namespace sluice::softdc
