// SPDX-License-Identifier: Apache-2.0
//
// PoolHarness: a pool, and the least that makes its messages arrive exactly once: the owner of the slots keeps them until
// their message has arrived and posts them again after an error; a receiver drops what it has had. Peers are
// receive queues, or unused numbers. On the software NIC in this process, or on the simulated one, where host 0
// sends.
#ifndef SLUICE_TESTS_TRANSPORT_QUEUE_POOL_HARNESS_H_
#define SLUICE_TESTS_TRANSPORT_QUEUE_POOL_HARNESS_H_

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"
#include "transport/softdc/sim/simulation.h"
#include "transport/softdc/verbs.h"

namespace sluice::queue {

struct HarnessOptions {
  PoolOptions pool;
  uint32_t data_slots = 512;
  uint32_t receive_depth = 1024;
  const verbs::VerbsApi* api = nullptr;  // instead of the software NIC's, or the simulation's
};

class PoolHarness : public QueueUser {
 public:
  static constexpr uint32_t kBufferBytes = 64;
  static constexpr uint32_t kControlSlots = 16;
  static constexpr uint32_t kNobodysDctn = 0xfffff0;

  struct Message {
    uint32_t peer;
    uint32_t sequence;
  };
  struct Peer {
    Target target;
    std::deque<uint32_t> kept;  // slots whose message has not arrived
    uint32_t sent = 0;
    uint32_t arrived = 0;       // in order
    uint32_t acknowledged = 0;  // of those
    uint32_t duplicates = 0;
    int resets = 0;
    int control_lost = 0;
    int failed = 0;
    int quiet = 0;
    absl::Status why;
  };

  using Options = HarnessOptions;

  // With a simulation, peers live on its hosts from 1 on; without, here.
  explicit PoolHarness(const Options& options, softdc::sim::Simulation* simulation = nullptr,
                       poller::Commands* commands = nullptr)
      : simulation_(simulation), commands_(commands != nullptr ? *commands : inline_commands_) {
    const uint32_t hosts = simulation == nullptr ? 1 : simulation->nodes();
    for (uint32_t host = 0; host < hosts; ++host) {
      const auto as = As(host);
      hosts_.push_back(std::make_unique<Host>());
      const verbs::VerbsApi* api =
          simulation == nullptr ? &softdc::Verbs() : &softdc::sim::Simulation::Verbs();
      if (host == 0 && options.api != nullptr) api = options.api;
      auto device = device::Device::Open("softdc0", {api});
      if (!device.ok()) {
        ADD_FAILURE() << device.status();
        return;
      }
      hosts_.back()->device = *std::move(device);
      if (host != 0 || simulation == nullptr) Receive(*hosts_.back(), options.receive_depth);
    }
    const auto as = As(0);
    cq_ = *verbs::CreateCq(device().api(), device().context(), 4096, nullptr);
    const size_t slots = options.data_slots + kControlSlots;
    memory_ = *memory::Slab::Create(device().api(), device().pd(), slots * kBufferBytes, 0);
    slots_ = std::make_unique<SlotTable>(memory_.data(), options.data_slots, kBufferBytes,
                                         memory_.data() + options.data_slots * kBufferBytes,
                                         kControlSlots, kBufferBytes);
    auto pool = DciPool::Create(device(), cq_.get(), *slots_, memory_.lkey(), options.pool,
                                commands_, *this);
    if (!pool.ok()) {
      ADD_FAILURE() << pool.status();
      return;
    }
    pool_ = *std::move(pool);
  }
  ~PoolHarness() override {
    const auto as = As(0);
    commands_.Finish();
    pool_.reset();
    addresses_.clear();
    memory_ = {};
    cq_.reset();
  }

  // A peer on that host; not `alive`: one that never was.
  uint32_t Add(bool alive = true, uint32_t host = 0) {
    const auto as = As(0);
    peers_.push_back(std::make_unique<Peer>());
    Target& target = peers_.back()->target;
    target.ah = AddressOf(host);
    target.dctn[0] = target.dctn[1] = alive ? hosts_[host]->receive->dctn() : kNobodysDctn;
    target.key[0] = target.key[1] = 42;
    target.cookie = static_cast<uint32_t>(peers_.size() - 1);
    target.name = "target " + std::to_string(target.cookie);
    pool_->Open(&target);
    return target.cookie;
  }
  // A peer that has answered once.
  uint32_t AddKnown(uint32_t host = 0) {
    const uint32_t peer = Add(true, host);
    pool_->Acknowledged(&peers_[peer]->target);
    return peer;
  }

  // False when no slot is free.
  bool Send(uint32_t peer) {
    const auto as = As(0);
    const uint32_t slot = slots_->Take(false);
    if (slot == kNoSlot) return false;
    const Message message{peer, peers_[peer]->sent++};
    std::memcpy((*slots_)[slot].data, &message, sizeof(message));
    (*slots_)[slot].length_bytes = sizeof(message);
    peers_[peer]->kept.push_back(slot);
    ++peers_[peer]->target.unacknowledged;
    pool_->Post(&peers_[peer]->target, slot);
    return true;
  }
  // Arrives as a message without number.
  void SendControl(uint32_t peer, bool notify = false) {
    const auto as = As(0);
    const uint32_t slot = slots_->Take(true);
    ASSERT_NE(slot, kNoSlot);
    const Message message{peer, kControl};
    std::memcpy((*slots_)[slot].data, &message, sizeof(message));
    (*slots_)[slot].length_bytes = sizeof(message);
    (*slots_)[slot].notify = notify;
    pool_->Post(&peers_[peer]->target, slot);
  }

  // One look at everything. Acknowledgements are heard of at once, unless `deaf`.
  void Pass() {
    {
      const auto as = As(0);
      commands_.Drain();
      for (int i = 0; i < passes; ++i) {
        pool_->Flush();
        pool_->Poll();
      }
      pool_->Flush();
    }
    for (uint32_t host = 0; host < hosts_.size(); ++host) {
      if (hosts_[host]->receive != nullptr) Look(host);
    }
    if (!deaf) Hear();
  }
  void Hear() {
    const auto as = As(0);
    for (const auto& peer : peers_) {
      if (peer->acknowledged == peer->arrived) continue;
      while (peer->acknowledged != peer->arrived) {
        pool_->Release(peer->kept.front());
        peer->kept.pop_front();
        ++peer->acknowledged;
        --peer->target.unacknowledged;
      }
      pool_->Acknowledged(&peer->target);
    }
    pool_->Poll();
  }
  // The owner of a closed target needs nothing of it any more.
  void Forget(uint32_t peer) {
    for (const uint32_t slot : peers_[peer]->kept) pool_->Release(slot);
    peers_[peer]->kept.clear();
    peers_[peer]->target.unacknowledged = 0;
  }

  void OnSent(Target* target, uint32_t, bool ok) override {
    log.push_back(target->name.str() + (ok ? " sent" : " not sent"));
  }
  void OnTargetReset(Target* target, const absl::Status&) override {
    Peer& peer = *peers_[target->cookie];
    ++peer.resets;
    EXPECT_FALSE(target->has_pending());
    pool_->Resume(target);
    for (const uint32_t slot : peer.kept) {
      EXPECT_EQ((*slots_)[slot].use, SlotUse::kHeld) << target->name;
      pool_->Post(target, slot);
    }
  }
  void OnControlLost(Target* target) override { ++peers_[target->cookie]->control_lost; }
  void OnTargetFailed(Target* target, const absl::Status& why) override {
    ++peers_[target->cookie]->failed;
    peers_[target->cookie]->why = why;
    Forget(target->cookie);
  }
  void OnUnanswered(Target* target) override { SendControl(target->cookie); }
  void OnTargetQuiet(Target* target) override { ++peers_[target->cookie]->quiet; }
  void OnQueueDead(const absl::Status& why) override { queue_dead.push_back(why); }

  DciPool& pool() { return *pool_; }
  SlotTable& slots() { return *slots_; }
  Peer& peer(uint32_t peer) { return *peers_[peer]; }
  Target& target(uint32_t peer) { return peers_[peer]->target; }
  device::Device& device() { return *hosts_[0]->device; }
  // Every kept slot is free again, and nothing is posted.
  bool quiet() const { return slots_->free_data() + slots_->free_control() == slots_->size(); }

  std::optional<softdc::sim::Simulation::As> As(uint32_t host) {
    if (simulation_ == nullptr) return std::nullopt;
    return std::optional<softdc::sim::Simulation::As>(std::in_place, *simulation_, host);
  }

  std::vector<std::string> log;
  std::vector<absl::Status> queue_dead;
  bool deaf = false;
  int passes = 1;  // of the pool; 65 find what nobody waits for

 private:
  static constexpr uint32_t kControl = 0xffffffff;

  struct Host {
    std::unique_ptr<device::Device> device;
    verbs::Cq cq;
    std::unique_ptr<receive::ReceiveQueue> receive;
  };

  static void Receive(Host& host, uint32_t depth) {
    host.cq = *verbs::CreateCq(host.device->api(), host.device->context(), 2 * depth, nullptr);
    auto receive = receive::ReceiveQueue::Create(
        *host.device, host.cq.get(),
        {.depth = depth, .buffer_bytes = kBufferBytes, .access_key = 42});
    ASSERT_TRUE(receive.ok()) << receive.status();
    host.receive = *std::move(receive);
  }
  void Look(uint32_t number) {
    const auto as = As(number);
    Host& host = *hosts_[number];
    ibv_wc completions[32];
    const int count = ibv_poll_cq(host.cq.get(), 32, completions);
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(completions[i].status, IBV_WC_SUCCESS);
      const auto index = static_cast<uint32_t>(completions[i].wr_id);
      Message message;
      std::memcpy(&message, host.receive->buffer(index), sizeof(message));
      host.receive->Recycle(index);
      if (message.sequence == kControl) continue;
      Peer& peer = *peers_[message.peer];
      ASSERT_LE(message.sequence, peer.arrived) << "one is missing at " << peer.target.name;
      ++(message.sequence == peer.arrived ? peer.arrived : peer.duplicates);
    }
    host.receive->Refill();
  }
  ibv_ah* AddressOf(uint32_t host) {
    while (addresses_.size() <= host) {
      const auto to = static_cast<uint32_t>(addresses_.size());
      ibv_ah_attr attr = {};
      attr.is_global = 1;
      attr.port_num = 1;
      attr.grh.sgid_index = device().path().sgid_index;
      attr.grh.hop_limit = 64;
      device().api().query_gid(hosts_[to]->device->context(), 1,
                               hosts_[to]->device->path().sgid_index, &attr.grh.dgid);
      addresses_.push_back({&device().api(), device().api().create_ah(device().pd(), &attr)});
      EXPECT_TRUE(addresses_.back());
    }
    return addresses_[host].get();
  }

  softdc::sim::Simulation* const simulation_;
  poller::InlineCommands inline_commands_;
  poller::Commands& commands_;
  std::vector<std::unique_ptr<Host>> hosts_;
  verbs::Cq cq_;
  memory::Slab memory_;
  std::unique_ptr<SlotTable> slots_;
  std::vector<verbs::Ah> addresses_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<DciPool> pool_;
};

}  // namespace sluice::queue

#endif  // SLUICE_TESTS_TRANSPORT_QUEUE_POOL_HARNESS_H_
