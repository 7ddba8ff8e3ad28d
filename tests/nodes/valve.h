// SPDX-License-Identifier: Apache-2.0
//
// Valve: stands between an endpoint and an engine, in both directions.
//
// Purpose       Passes everything on, until it is shut: then each peer is told goodbye, the engine hears nothing more and may
//               be destroyed, and the endpoint continues until its goodbyes have left. Endpoint::Close() would wait for that in
//               real time. A meddler is called after each upcall, and may disconnect the peer there.
// Ownership     A process. It owns the endpoint.
// Threads       One thread.
#ifndef SLUICE_TESTS_NODES_VALVE_H_
#define SLUICE_TESTS_NODES_VALVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/endpoint/endpoint.h"

namespace sluice::nodes {

class Valve final : public endpoint::Endpoint, public endpoint::Handler {
 public:
  using PeerId = endpoint::PeerId;
  using Meddler = std::function<void(PeerId peer)>;

  void set_engine(endpoint::Handler* engine) { engine_ = engine; }
  void set_meddler(Meddler meddler) { meddler_ = std::move(meddler); }
  void Attach(std::unique_ptr<endpoint::Endpoint> endpoint) { below_ = std::move(endpoint); }
  // Peers that are up.
  std::vector<PeerId> up() const;
  bool shut() const { return shut_; }
  void Free() { below_.reset(); }

  // What the endpoint says.
  void OnPeerUp(PeerId peer, const endpoint::PeerInfo& info) override;
  void OnPeerDown(PeerId peer, const absl::Status& why) override;
  bool OnMessage(PeerId peer, std::span<const std::byte> bytes) override;
  void OnAcknowledged(PeerId peer, uint32_t total) override;
  bool OnResend(PeerId peer) override;
  void OnWritable(PeerId peer) override;
  void OnLent(PeerId peer, uint32_t number, const absl::Status& status) override;
  void OnFetched(PeerId peer, const absl::StatusOr<endpoint::LargeBuffer>& buffer,
                 uint32_t number) override;

  // What the engine asks for.
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override {
    return below_->Listen(host, port);
  }
  absl::StatusOr<PeerId> Connect(const std::string& host, uint16_t port,
                                 int64_t deadline_ns) override {
    return below_->Connect(host, port, deadline_ns);
  }
  absl::StatusOr<endpoint::SendBuffer> Reserve(PeerId peer, uint32_t size_bytes) override {
    return below_->Reserve(peer, size_bytes);
  }
  void Commit(PeerId peer, endpoint::SendBuffer buffer, uint32_t length_bytes,
              bool report_soon) override {
    below_->Commit(peer, buffer, length_bytes, report_soon);
  }
  endpoint::Room TryReserve(PeerId peer, uint32_t size_bytes) override {
    return below_->TryReserve(peer, size_bytes);
  }
  SlotRange NeverReleased() const override { return below_->NeverReleased(); }
  void Repost(PeerId peer, uint32_t slot) override { below_->Repost(peer, slot); }
  void Release(uint32_t slot) override { below_->Release(slot); }
  void Cancel(PeerId peer, endpoint::SendBuffer buffer) override { below_->Cancel(peer, buffer); }
  void Flush() override { below_->Flush(); }
  absl::StatusOr<endpoint::LargeBuffer> Lend(PeerId peer, uint64_t bytes, bool waits) override {
    return below_->Lend(peer, bytes, waits);
  }
  std::optional<endpoint::RemoteMemory> WhereLent(uint32_t number) override {
    return below_->WhereLent(number);
  }
  void EndLoan(uint32_t number) override { below_->EndLoan(number); }
  absl::StatusOr<uint32_t> Fetch(PeerId peer, const endpoint::RemoteMemory& from) override {
    return below_->Fetch(peer, from);
  }
  void CancelFetch(uint32_t number) override { below_->CancelFetch(number); }
  void GiveBack(uint32_t number) override { below_->GiveBack(number); }
  endpoint::HeldMemory HoldLent(uint32_t number) override { return below_->HoldLent(number); }
  bool LendHeld(PeerId peer, const endpoint::HeldMemory& memory) override {
    return below_->LendHeld(peer, memory);
  }
  endpoint::HeldMemory HoldFetched(uint32_t number) override { return below_->HoldFetched(number); }
  int Poll() override { return below_->Poll(); }
  bool PrepareToSleep() override { return below_->PrepareToSleep(); }
  int fd() const override { return below_->fd(); }
  int64_t SleepLimitNs() const override { return below_->SleepLimitNs(); }
  void Wake() override { below_->Wake(); }
  absl::StatusOr<endpoint::PeerReport> Report(PeerId peer) const override {
    return below_->Report(peer);
  }
  endpoint::HandshakeCounts Handshakes() const override { return below_->Handshakes(); }
  absl::Status Health() const override { return below_->Health(); }
  endpoint::ConnectionCounts Connections() const override { return below_->Connections(); }
  endpoint::Counters Counts() const override { return below_->Counts(); }
  std::vector<endpoint::QueueReport> Queues() const override { return below_->Queues(); }
  void Disconnect(PeerId peer) override { below_->Disconnect(peer); }
  // Shuts it.
  void Close() override;

 private:
  void Meddle(PeerId peer) {
    if (meddler_ && !shut_) meddler_(peer);
  }

  std::unique_ptr<endpoint::Endpoint> below_;
  endpoint::Handler* engine_ = nullptr;
  Meddler meddler_;
  bool shut_ = false;
  std::set<std::pair<uint32_t, uint32_t>> up_;  // by index and generation
};

}  // namespace sluice::nodes

#endif  // SLUICE_TESTS_NODES_VALVE_H_
