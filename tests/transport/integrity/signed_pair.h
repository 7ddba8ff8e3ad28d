// SPDX-License-Identifier: Apache-2.0
//
// SignedPair: a store that moves protected blocks, and a client whose memory they come from or go to, joined by a signed
// queue; each with a region, and a handler that writes down what happens. In this process, or on two simulated hosts.
#ifndef SLUICE_TESTS_TRANSPORT_INTEGRITY_SIGNED_PAIR_H_
#define SLUICE_TESTS_TRANSPORT_INTEGRITY_SIGNED_PAIR_H_

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/cm/sim_commands.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/integrity/convert.h"
#include "transport/integrity/signed_queue.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::integrity {

inline constexpr size_t kRegionBytes = size_t{1} << 20;

struct Ended {
  absl::Status status;
  bool replied = false;
  int times = 0;
};

class SignedEnd : public SignedQueueUser {
 public:
  uint32_t OnMismatch(uint64_t cookie, const Mismatch& mismatch,
                      std::span<std::byte> room) override {
    const std::string text = "bad " + std::to_string(cookie);
    std::memcpy(room.data(), text.data(), text.size());
    mismatches[cookie] = mismatch;
    return static_cast<uint32_t>(text.size());
  }
  void OnEnd(uint64_t cookie, const absl::Status& status, bool replied) override {
    Ended& end = ended[cookie];
    end.status = status;
    end.replied = replied;
    ++end.times;
    if (on_end) on_end(cookie);
  }
  void OnReply(std::span<const std::byte> bytes) override {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    replies.push_back(text);
    if (on_reply) on_reply(text);
  }
  void OnDown(const absl::Status& why) override { downs.push_back(why); }

  std::span<std::byte> at(size_t offset, size_t size) const {
    return {region.data() + offset, size};
  }

  std::unique_ptr<device::Device> device;
  std::unique_ptr<poller::Commands> commands;
  memory::Slab region;
  std::unique_ptr<SignedQueue> queue;
  std::map<uint64_t, Mismatch> mismatches;
  std::map<uint64_t, Ended> ended;
  std::vector<std::string> replies;
  std::vector<absl::Status> downs;
  std::function<void(uint64_t)> on_end;
  std::function<void(const std::string&)> on_reply;
  bool deaf = false;  // no event reaches the queue
};

struct SignedPairOptions {
  SignedQueueOptions queue;
  bool simulated = true;
  uint64_t seed = 1;
  softdc::sim::Options sim;
  // Instead of the software NIC's, or the simulation's, at the store.
  const verbs::VerbsApi* api = nullptr;
};

class SignedPair {
 public:
  using Simulation = softdc::sim::Simulation;

  explicit SignedPair(SignedPairOptions options = {}) : random_(options.seed) {
    if (options.simulated) {
      options.sim.seed = options.seed;
      options.sim.nodes = 2;
      simulation = Simulation::Create(options.sim).value();
    }
    Open(store, 0, options);
    Open(client, 1, options);
    for (const auto& [end, node, peer] :
         {std::tuple{&store, 0u, &client}, std::tuple{&client, 1u, &store}}) {
      const auto as = As(node);
      const absl::Status status = end->queue->Connect(peer->queue->address());
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  ~SignedPair() {
    for (const auto& [end, node] : {std::pair{&store, 0u}, std::pair{&client, 1u}}) {
      const auto as = As(node);
      if (end->commands != nullptr) end->commands->Finish();
      end->queue.reset();
      end->region = {};
      end->device.reset();
    }
  }

  std::optional<Simulation::As> As(uint32_t node) {
    if (simulation == nullptr) return std::nullopt;
    return std::optional<Simulation::As>(std::in_place, *simulation, node);
  }

  // From the store's region at `offset` to the client's at the same one, or back.
  Transfer Plan(Transfer::Kind kind, const Protection& protection, size_t offset,
                uint64_t data_bytes, uint64_t cookie) {
    Transfer transfer;
    transfer.kind = kind;
    transfer.protection = protection;
    transfer.memory = store.region.data() + offset;
    transfer.lkey = store.region.lkey();
    transfer.remote_address = reinterpret_cast<uint64_t>(client.region.data() + offset);
    transfer.rkey = client.region.rkey();
    transfer.data_bytes = data_bytes;
    transfer.cookie = cookie;
    return transfer;
  }
  absl::Status Post(Transfer transfer) {
    const auto as = As(0);
    const std::string ok = "ok " + std::to_string(transfer.cookie);
    transfer.reply = std::as_bytes(std::span(ok));
    return store.queue->Post(transfer);
  }
  void Flush() {
    const auto as = As(0);
    store.queue->Flush();
  }
  void Pass() {
    for (const auto& [end, node] : {std::pair{&store, 0u}, std::pair{&client, 1u}}) {
      const auto as = As(node);
      end->device->ReadAsyncEvents([&, end = end](const device::DeviceEvent& event) {
        if (!end->deaf) end->queue->OnDeviceEvent(event);
      });
      end->queue->Poll();
    }
  }
  // Until `done`. False: nothing is left to happen, or (in real time) it takes absurdly long.
  bool Run(const std::function<bool()>& done) {
    for (uint64_t pass = 0; pass < 100'000'000; ++pass) {
      Pass();
      if (done()) return true;
      if (simulation != nullptr && !simulation->Step()) {
        Pass();
        return done();
      }
    }
    return false;
  }
  bool RunUntilEnded(size_t count) {
    return Run([&] {
      return store.ended.size() >= count &&
             (client.replies.size() >= count || !client.downs.empty() || !store.downs.empty());
    });
  }

  base::SeededRandom& random() { return random_; }

  std::unique_ptr<Simulation> simulation;
  SignedEnd store;  // node 0, the initiator
  SignedEnd client;

 private:
  void Open(SignedEnd& end, uint32_t node, const SignedPairOptions& options) {
    const auto as = As(node);
    const verbs::VerbsApi* api = simulation != nullptr ? &Simulation::Verbs() : &softdc::Verbs();
    if (node == 0 && options.api != nullptr) api = options.api;
    auto device = device::Device::Open("softdc0", {api});
    ASSERT_TRUE(device.ok()) << device.status();
    end.device = *std::move(device);
    if (simulation != nullptr) {
      end.commands = std::make_unique<cm::SimCommands>(*simulation, node, random_);
    } else {
      end.commands = std::make_unique<poller::InlineCommands>();
    }
    auto region = memory::Slab::Create(
        end.device->api(), end.device->pd(), kRegionBytes,
        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    ASSERT_TRUE(region.ok()) << region.status();
    end.region = *std::move(region);
    SignedQueueOptions queue = options.queue;
    queue.peer = node == 0 ? "client" : "store";
    auto created = SignedQueue::Create(*end.device, *end.commands, end, queue);
    ASSERT_TRUE(created.ok()) << created.status();
    end.queue = *std::move(created);
  }

  base::SeededRandom random_;
};

// Random blocks, as they stand in memory of that end.
inline void Fill(base::Random& random, std::span<std::byte> data) {
  for (size_t i = 0; i < data.size(); i += 8) {
    const uint64_t word = random.Next64();
    std::memcpy(&data[i], &word, 8);
  }
}
inline std::vector<std::byte> Protected(const Protection& protection,
                                        std::span<const std::byte> data) {
  std::vector<std::byte> bytes(MemoryBytes(protection, data.size()));
  Protect(protection, data, bytes);
  return bytes;
}

}  // namespace sluice::integrity

#endif  // SLUICE_TESTS_TRANSPORT_INTEGRITY_SIGNED_PAIR_H_
