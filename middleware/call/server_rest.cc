// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: asks idle clients to leave when the endpoint has no place for another peer (kFlagRest, decision 0068). The engine looks
// for the client only then: other passes pay nothing. The client decides whether it leaves, because a request may be on its way.
#include <cstdint>

#include "middleware/call/server_engine.h"

namespace sluice::call {
namespace {

// A client that was asked and did not leave is not asked again for this time. No connection ends for it.
constexpr int64_t kAskAgainNs = 1'000'000'000;
// While no client waits for a place, only a client that was unused for this time is asked.
constexpr int64_t kUnusedNs = 1'000'000'000;
// A client that was asked leaves within this time, if it leaves. Until then nobody else is asked: a client that is refused tries again
// several times for one place.
constexpr int64_t kLeavingNs = 50'000'000;
// If no client was refused for this time, there are enough places, and nobody is asked in advance.
constexpr int64_t kEnoughNs = 10'000'000'000;

}  // namespace

// `refused`: a client was refused. It will try again, and needs a place then. Otherwise the last place was taken, and the next
// client will need one.
void ServerEngine::OnNoPlace(bool refused) {
  if (drain_.started() || closed_) return;
  RefreshNow();
  if (refused) {
    refused_ns_ = now_ns_;
  } else if (refused_ns_ == 0 || now_ns_ - refused_ns_ > kEnoughNs) {
    return;
  }
  Peer* longest = nullptr;
  endpoint::PeerId id;
  for (uint32_t index = 0; index < peers_.size(); ++index) {
    Peer* const peer = peers_[index].get();
    if (peer == nullptr || peer->ending) continue;
    const int64_t asked_ago_ns =
        peer->rest_asked_ns == 0 ? INT64_MAX : now_ns_ - peer->rest_asked_ns;
    if (asked_ago_ns < kLeavingNs) return;
    if (!peer->calls.empty() || !peer->backlog.empty() || asked_ago_ns < kAskAgainNs) continue;
    if (longest != nullptr && longest->used_ns <= peer->used_ns) continue;
    longest = peer;
    id = {index, peer->generation};
  }
  if (longest == nullptr || (!refused && now_ns_ - longest->used_ns < kUnusedNs)) return;
  longest->rest_asked_ns = longest->used_ns = now_ns_;  // if it does not leave: the end of the line
  ++counters_.rests_asked;
  const Outgoing outgoing = Reserve(id, longest, 0);
  if (outgoing.data == nullptr) return;
  frame::Header header;
  header.kind = frame::Kind::kDrain;
  header.flags = frame::kFlagRest;
  Commit(id, outgoing, header);
}

}  // namespace sluice::call
