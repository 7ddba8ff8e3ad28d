// SPDX-License-Identifier: Apache-2.0
//
// bulk_neighbours: whether bulk data in flight make small messages between the same two hosts wait, in the virtual time of
// the simulated fabric: round trips of 64 bytes between two endpoints, one at a time, alone and while a port beside each
// keeps transfers of 1 MiB open.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "middleware/bulk/port.h"
#include "tests/transport/cm/sim_commands.h"
#include "tests/transport/endpoint/sim_endpoint.h"
#include "transport/base/random.h"
#include "transport/softdc/sim/simulation.h"

namespace sluice::benchmarks {
namespace {

using softdc::sim::Simulation;

constexpr uint64_t kTransferBytes = 1 << 20;
constexpr uint32_t kOpen = 4;
constexpr size_t kRoundTrips = 2'000;

// A port on a host, which begins a transfer for each that ends.
class BulkEnd final : public bulk::PortUser {
 public:
  BulkEnd(Simulation& simulation, uint32_t node, device::Device& device,
          const bulk::PortOptions& options)
      : simulation_(simulation),
        node_(node),
        clock_(simulation),
        random_(node + 5),
        commands_(simulation, node, random_),
        memory_(kTransferBytes) {
    const Simulation::As as(simulation, node);
    port_ = bulk::Port::Create(device, clock_, random_, commands_, *this, options).value();
  }
  ~BulkEnd() override {
    const Simulation::As as(simulation_, node_);
    commands_.Finish();
    port_.reset();
  }
  void Lend() {
    const Simulation::As as(simulation_, node_);
    lease_ = port_->leases().Lend(memory_, bulk::kMayRead | bulk::kMayWrite, 0).value();
  }
  void Start() {
    request_.local = lease_;
    request_.data_bytes = kTransferBytes;
    if (!port_->Start(peer, request_).ok()) std::abort();
  }
  void Poll() {
    const Simulation::As as(simulation_, node_);
    port_->Poll();
  }
  bulk::Port& port() { return *port_; }

  void OnLent(bulk::LeaseId, const absl::StatusOr<bulk::Capability>& capability) override {
    lent = *capability;
  }
  void OnReturned(bulk::LeaseId) override {}
  void OnTransferred(bulk::TransferId, const absl::Status& status) override {
    if (!status.ok()) std::abort();
    ++transfers;
    Start();
  }
  void OnArrival(bulk::PeerId, const bulk::Arrival&) override {}
  void OnPeerDown(bulk::PeerId, const absl::Status&) override {}

  void AskFor(integrity::TransferKind kind, const bulk::Capability& remote) {
    request_.kind = kind;
    request_.remote = remote;
  }

  bulk::PeerId peer;
  std::optional<bulk::Capability> lent;
  uint64_t transfers = 0;

 private:
  Simulation& simulation_;
  const uint32_t node_;
  cm::SimClock clock_;
  base::SeededRandom random_;
  cm::SimCommands commands_;
  std::vector<std::byte> memory_;
  bulk::LeaseId lease_;
  bulk::TransferRequest request_;
  std::unique_ptr<bulk::Port> port_;
};

struct Result {
  int64_t p50_ns = 0;
  int64_t p99_ns = 0;
  double bulk_gigabits = 0;
};

Result Measure(std::optional<integrity::TransferKind> kind, uint32_t piece_bytes,
               uint32_t pieces_in_flight) {
  auto simulation = Simulation::Create({.seed = 1, .nodes = 2}).value();
  endpoint::SimEndpoint client(*simulation, 0);
  endpoint::SimEndpoint server(*simulation, 1);
  server.Listen();
  const endpoint::PeerId to_server = client.Connect(1).value();
  const bulk::PortOptions options{.max_pieces_in_flight = pieces_in_flight,
                                  .piece_bytes = piece_bytes};
  BulkEnd one(*simulation, 0, client.device(), options);
  BulkEnd other(*simulation, 1, server.device(), options);
  const auto run = [&](const std::function<bool()>& done) {
    for (;;) {
      one.Poll();
      other.Poll();
      client.Poll();
      server.Poll();
      if (done()) return;
      // As threads that look at least so often.
      simulation->RunFor(100);
    }
  };
  run([&] { return !client.recorder.ups.empty() && !server.recorder.ups.empty(); });
  server.recorder.on_message = [&](endpoint::PeerId from, std::span<const std::byte> bytes) {
    (void)server.Send(from, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  if (kind) {
    std::string ticket, answer;
    {
      const Simulation::As as(*simulation, 0);
      one.peer = one.port().Offer(&ticket).value();
    }
    {
      const Simulation::As as(*simulation, 1);
      other.peer = other.port().Accept(ticket, &answer).value();
    }
    const Simulation::As as(*simulation, 0);
    if (!one.port().Complete(one.peer, answer).ok()) std::abort();
    one.Lend();
    other.Lend();
    run([&] { return one.lent && other.lent; });
    one.AskFor(*kind, *other.lent);
    for (uint32_t i = 0; i < kOpen; ++i) one.Start();
    run([&] { return one.transfers > kOpen; });
  }
  const uint64_t transfers_before = one.transfers;
  const int64_t begin_ns = simulation->NowNs();
  std::vector<int64_t> trips_ns;
  base::SeededRandom random(3);
  while (trips_ns.size() < kRoundTrips) {
    bool answered = false;
    client.recorder.on_message = [&](endpoint::PeerId, std::span<const std::byte>) {
      answered = true;
    };
    const int64_t start_ns = simulation->NowNs();
    {
      const Simulation::As as(*simulation, 0);
      if (!client.Send(to_server, std::string(64, 'x')).ok()) std::abort();
      client.endpoint().Flush();
    }
    run([&] { return answered; });
    trips_ns.push_back(simulation->NowNs() - start_ns);
    const int64_t next_ns = simulation->NowNs() + static_cast<int64_t>(random.Below(20'000));
    run([&] { return simulation->NowNs() >= next_ns; });
  }
  std::sort(trips_ns.begin(), trips_ns.end());
  Result result;
  result.p50_ns = trips_ns[trips_ns.size() / 2];
  result.p99_ns = trips_ns[trips_ns.size() * 99 / 100];
  result.bulk_gigabits = 8.0 * static_cast<double>(kTransferBytes) *
                         static_cast<double>(one.transfers - transfers_before) /
                         static_cast<double>(simulation->NowNs() - begin_ns);
  return result;
}

void Main() {
  const Result alone = Measure(std::nullopt, 64 << 10, 16);
  const auto print = [&](const char* name, const Result& result) {
    std::printf("%-34s %8ld %6.2f %8ld %6.2f %12.1f\n", name, result.p50_ns,
                static_cast<double>(result.p50_ns) / static_cast<double>(alone.p50_ns),
                result.p99_ns,
                static_cast<double>(result.p99_ns) / static_cast<double>(alone.p99_ns),
                result.bulk_gigabits);
    std::fflush(stdout);
  };
  std::printf("%-34s %8s %6s %8s %6s %12s\n", "", "p50 ns", "ratio", "p99 ns", "ratio",
              "bulk Gb/s");
  print("alone", alone);
  using enum integrity::TransferKind;
  print("writes, 16 pieces of 64 KiB", Measure(kWrite, 64 << 10, 16));
  print("writes, 16 pieces of 16 KiB", Measure(kWrite, 16 << 10, 16));
  print("writes, 16 pieces of 4 KiB", Measure(kWrite, 4 << 10, 16));
  print("reads, 16 pieces of 64 KiB", Measure(kRead, 64 << 10, 16));
  print("reads, 4 pieces of 64 KiB", Measure(kRead, 64 << 10, 4));
  print("reads, 16 pieces of 16 KiB", Measure(kRead, 16 << 10, 16));
}

}  // namespace
}  // namespace sluice::benchmarks

int main() { sluice::benchmarks::Main(); }
