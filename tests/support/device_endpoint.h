// SPDX-License-Identifier: Apache-2.0
//
// DeviceEndpoint: the endpoint of a device under the names of a fake network, such as "a:1".
//
// Purpose       Tests that were written for a LocalNetwork run on a device, with their own addresses. Every host is this host, and a port is
//               any free port of it; the map of the network says which.
// Ownership     The stack that created it. The map outlives it.
// Threads       As in endpoint.h.
#ifndef SLUICE_TESTS_SUPPORT_DEVICE_ENDPOINT_H_
#define SLUICE_TESTS_SUPPORT_DEVICE_ENDPOINT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/endpoint/endpoint.h"

namespace sluice::testing_support {

// Ports at which the names of one fake network are. Any thread.
class PortsOfNames {
 public:
  bool Has(const std::string& name) {
    std::lock_guard lock(mutex_);
    return ports_.contains(name);
  }
  void Add(const std::string& name, uint16_t port) {
    std::lock_guard lock(mutex_);
    ports_[name] = port;
  }
  void Remove(const std::string& name) {
    std::lock_guard lock(mutex_);
    ports_.erase(name);
  }
  // Port 1 of a name that nobody has: no program of a test machine listens there.
  uint16_t PortOf(const std::string& name) {
    std::lock_guard lock(mutex_);
    const auto found = ports_.find(name);
    return found == ports_.end() ? 1 : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, uint16_t> ports_;
};

class DeviceEndpoint final : public endpoint::Endpoint {
 public:
  DeviceEndpoint(std::unique_ptr<endpoint::Endpoint> real, PortsOfNames* ports)
      : real_(std::move(real)), ports_(ports) {}
  ~DeviceEndpoint() override { Forget(); }

  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override {
    const std::string name = host + ":" + std::to_string(port);
    if (port != 0 && ports_->Has(name)) {
      return absl::AlreadyExistsError("listen on " + name + ": the port is taken");
    }
    auto real = real_->Listen(kHost, 0);
    if (!real.ok()) return real;
    const uint16_t told = port != 0 ? port : *real;
    names_.push_back(host + ":" + std::to_string(told));
    ports_->Add(names_.back(), *real);
    return told;
  }
  absl::StatusOr<endpoint::PeerId> Connect(const std::string& host, uint16_t port,
                                           int64_t deadline_ns) override {
    return real_->Connect(kHost, ports_->PortOf(host + ":" + std::to_string(port)), deadline_ns);
  }
  void Close() override {
    Forget();
    real_->Close();
  }

  absl::StatusOr<endpoint::SendBuffer> Reserve(endpoint::PeerId peer,
                                               uint32_t size_bytes) override {
    return real_->Reserve(peer, size_bytes);
  }
  void Commit(endpoint::PeerId peer, endpoint::SendBuffer buffer, uint32_t length_bytes,
              bool report_soon) override {
    real_->Commit(peer, buffer, length_bytes, report_soon);
  }
  endpoint::Room TryReserve(endpoint::PeerId peer, uint32_t size_bytes) override {
    return real_->TryReserve(peer, size_bytes);
  }
  void CommitRoom(endpoint::PeerId peer, endpoint::Room room, uint32_t length_bytes,
                  bool report_soon) override {
    real_->CommitRoom(peer, room, length_bytes, report_soon);
  }
  void Repost(endpoint::PeerId peer, uint32_t slot) override { real_->Repost(peer, slot); }
  void Release(uint32_t slot) override { real_->Release(slot); }
  SlotRange NeverReleased() const override { return real_->NeverReleased(); }
  void Cancel(endpoint::PeerId peer, endpoint::SendBuffer buffer) override {
    real_->Cancel(peer, buffer);
  }
  void Flush() override { real_->Flush(); }
  absl::StatusOr<endpoint::LargeBuffer> Lend(endpoint::PeerId peer, uint64_t bytes,
                                             bool waits) override {
    return real_->Lend(peer, bytes, waits);
  }
  std::optional<endpoint::RemoteMemory> WhereLent(uint32_t number) override {
    return real_->WhereLent(number);
  }
  void EndLoan(uint32_t number) override { real_->EndLoan(number); }
  absl::StatusOr<uint32_t> Fetch(endpoint::PeerId peer,
                                 const endpoint::RemoteMemory& from) override {
    return real_->Fetch(peer, from);
  }
  void CancelFetch(uint32_t number) override { real_->CancelFetch(number); }
  void GiveBack(uint32_t number) override { real_->GiveBack(number); }
  endpoint::HeldMemory HoldLent(uint32_t number) override { return real_->HoldLent(number); }
  bool LendHeld(endpoint::PeerId peer, const endpoint::HeldMemory& memory) override {
    return real_->LendHeld(peer, memory);
  }
  endpoint::HeldMemory HoldFetched(uint32_t number) override { return real_->HoldFetched(number); }
  void AllowBlocking() override { real_->AllowBlocking(); }
  int Poll() override { return real_->Poll(); }
  bool PrepareToSleep() override { return real_->PrepareToSleep(); }
  int fd() const override { return real_->fd(); }
  int64_t SleepLimitNs() const override { return real_->SleepLimitNs(); }
  void Wake() override { real_->Wake(); }
  absl::StatusOr<endpoint::PeerReport> Report(endpoint::PeerId peer) const override {
    return real_->Report(peer);
  }
  endpoint::HandshakeCounts Handshakes() const override { return real_->Handshakes(); }
  absl::Status Health() const override { return real_->Health(); }
  endpoint::ConnectionCounts Connections() const override { return real_->Connections(); }
  endpoint::Counters Counts() const override { return real_->Counts(); }
  std::vector<endpoint::QueueReport> Queues() const override { return real_->Queues(); }
  void Disconnect(endpoint::PeerId peer) override { real_->Disconnect(peer); }

 private:
  static constexpr const char* kHost = "127.0.0.1";

  void Forget() {
    for (const std::string& name : names_) ports_->Remove(name);
    names_.clear();
  }

  const std::unique_ptr<endpoint::Endpoint> real_;
  PortsOfNames* const ports_;
  std::vector<std::string> names_;  // that this endpoint listens at
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_DEVICE_ENDPOINT_H_
