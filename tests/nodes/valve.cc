// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/valve.h"

namespace sluice::nodes {

std::vector<endpoint::PeerId> Valve::up() const {
  std::vector<PeerId> all;
  for (const auto& [index, generation] : up_) all.push_back({index, generation});
  return all;
}

void Valve::Close() {
  if (shut_) return;
  shut_ = true;
  for (const PeerId peer : up()) below_->Disconnect(peer);
  below_->Flush();
}

void Valve::OnPeerUp(PeerId peer, const endpoint::PeerInfo& info) {
  up_.emplace(peer.index, peer.generation);
  if (shut_) return below_->Disconnect(peer);
  engine_->OnPeerUp(peer, info);
  Meddle(peer);
}

void Valve::OnPeerDown(PeerId peer, const absl::Status& why) {
  up_.erase({peer.index, peer.generation});
  if (!shut_) engine_->OnPeerDown(peer, why);
}

bool Valve::OnMessage(PeerId peer, std::span<const std::byte> bytes) {
  if (shut_) return true;
  const bool taken = engine_->OnMessage(peer, bytes);
  Meddle(peer);
  return taken;
}

void Valve::OnAcknowledged(PeerId peer, uint32_t total) {
  if (shut_) return;
  engine_->OnAcknowledged(peer, total);
  Meddle(peer);
}

bool Valve::OnResend(PeerId peer) {
  if (shut_) return true;
  const bool kept = engine_->OnResend(peer);
  Meddle(peer);
  return kept;
}

void Valve::OnWritable(PeerId peer) {
  if (shut_) return;
  engine_->OnWritable(peer);
  Meddle(peer);
}

void Valve::OnLent(PeerId peer, uint32_t number, const absl::Status& status) {
  if (!shut_) engine_->OnLent(peer, number, status);
}

void Valve::OnFetched(PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                      uint32_t number) {
  if (shut_) return;
  engine_->OnFetched(peer, buffer, number);
  Meddle(peer);
}

}  // namespace sluice::nodes
