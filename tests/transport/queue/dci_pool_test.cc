// SPDX-License-Identifier: Apache-2.0
//
// The pool on the software NIC, with receive queues of the same process as peers, and DCT numbers
// that nobody has as dead ones.
#include "transport/queue/dci_pool.h"

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/error.h"
#include "transport/base/random.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/receive/receive_queue.h"
#include "transport/softdc/verbs.h"

namespace sluice::queue {
namespace {

constexpr uint32_t kSlots = 512;
constexpr uint32_t kBufferBytes = 64;
constexpr uint32_t kNobodysDctn = 0xfffff0;

struct Message {
  uint32_t target;
  uint32_t sequence;
};

class DciPoolTest : public testing::Test, protected QueueUser {
 protected:
  void Start(PoolOptions options) {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = std::move(*opened);
    cq_ = std::move(*verbs::CreateCq(device_->api(), device_->context(), 4096, nullptr));
    receive_cq_ = std::move(*verbs::CreateCq(device_->api(), device_->context(), 4096, nullptr));
    receive_ = std::move(*receive::ReceiveQueue::Create(
        *device_, receive_cq_.get(),
        {.depth = 1024, .buffer_bytes = kBufferBytes, .access_key = 42}));
    memory_ = std::move(
        *memory::Slab::Create(device_->api(), device_->pd(), (kSlots + 16) * kBufferBytes, 0));
    slots_ = std::make_unique<SlotTable>(memory_.data(), kSlots, kBufferBytes,
                                         memory_.data() + kSlots * kBufferBytes, 16, kBufferBytes);
    options.dead_peer_ns = 20'000'000;
    auto pool =
        DciPool::Create(*device_, cq_.get(), *slots_, memory_.lkey(), options, commands_, *this);
    ASSERT_TRUE(pool.ok()) << pool.status();
    pool_ = std::move(*pool);

    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = device_->path().sgid_index;
    attr.grh.hop_limit = 64;
    ASSERT_EQ(device_->api().query_gid(device_->context(), 1, attr.grh.sgid_index, &attr.grh.dgid),
              0);
    ah_ = {&device_->api(), device_->api().create_ah(device_->pd(), &attr)};
    ASSERT_TRUE(ah_);
  }

  Target* NewTarget(bool alive) {
    targets_.push_back(std::make_unique<Target>());
    Target* target = targets_.back().get();
    target->ah = ah_.get();
    target->dctn[0] = alive ? receive_->dctn() : kNobodysDctn;
    target->key[0] = 42;
    target->cookie = static_cast<uint32_t>(targets_.size() - 1);
    target->name = "target " + std::to_string(target->cookie);
    pool_->Open(target);
    return target;
  }

  // False when no slot is free.
  bool Send(Target* target, bool notify = false) {
    const uint32_t slot = slots_->Take(false);
    if (slot == kNoSlot) return false;
    const Message message{target->cookie, sent_[target->cookie]++};
    std::memcpy((*slots_)[slot].data, &message, sizeof(message));
    (*slots_)[slot].length_bytes = sizeof(message);
    (*slots_)[slot].notify = notify;
    pool_->Post(target, slot);
    return true;
  }

  void Pass() {
    pool_->Flush();
    commands_.Drain();
    pool_->Poll();
    ibv_wc completions[32];
    const int count = ibv_poll_cq(receive_cq_.get(), 32, completions);
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(completions[i].status, IBV_WC_SUCCESS);
      const auto index = static_cast<uint32_t>(completions[i].wr_id);
      Message message;
      std::memcpy(&message, receive_->buffer(index), sizeof(message));
      received_[message.target].push_back(message.sequence);
      receive_->Recycle(index);
    }
  }

  void ExpectAllInOrder(const Target* target, uint32_t count) {
    const auto& got = received_[target->cookie];
    ASSERT_EQ(got.size(), count) << target->name;
    for (uint32_t i = 0; i < count; ++i) ASSERT_EQ(got[i], i) << target->name;
  }

  void OnSent(Target* target, uint32_t, bool ok) override {
    log_.push_back(target->name.str() + (ok ? " sent" : " not sent"));
  }
  void OnTargetFailed(Target* target, const absl::Status& why) override {
    ++failed_[target->cookie];
    last_failure_ = why;
  }
  void OnTargetQuiet(Target* target) override { ++quiet_[target->cookie]; }
  void OnQueueDead(const absl::Status& why) override { FAIL() << why; }

  std::unique_ptr<device::Device> device_;
  poller::InlineCommands commands_;
  verbs::Cq cq_, receive_cq_;
  std::unique_ptr<receive::ReceiveQueue> receive_;
  memory::Slab memory_;
  std::unique_ptr<SlotTable> slots_;
  verbs::Ah ah_;
  std::vector<std::unique_ptr<Target>> targets_;
  std::unique_ptr<DciPool> pool_;
  std::map<uint32_t, uint32_t> sent_;
  std::map<uint32_t, std::vector<uint32_t>> received_;
  std::map<uint32_t, int> failed_, quiet_;
  std::vector<std::string> log_;
  absl::Status last_failure_;
};

TEST_F(DciPoolTest, UnsignalledRequestsGiveTheirSlotsBackWithALaterOne) {
  Start({.dci_count = 1});
  Target* target = NewTarget(true);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 37; ++i) {
      while (!Send(target)) Pass();
    }
    Pass();
  }
  ASSERT_TRUE(Send(target, /*notify=*/true));
  while (log_.empty()) Pass();
  EXPECT_EQ(log_, std::vector<std::string>{"target 0 sent"});
  while (received_[0].size() < 3'701) Pass();
  ExpectAllInOrder(target, 3'701);
  EXPECT_EQ(slots_->free_data(), kSlots);
  EXPECT_LT(pool_->counters().doorbells, 3'701u / 8);
  pool_->Close(target);
  EXPECT_EQ(target->posted, 0u);
}

TEST_F(DciPoolTest, DeadPeerStopsItsStreamOnlyAndTheStreamIsReset) {
  Start({.dci_count = 1});
  if (!device_->capabilities().Has(verbs::Feature::kStreamReset)) {
    GTEST_SKIP() << device_->capabilities().Get(verbs::Feature::kStreamReset).why;
  }
  Target* healthy = NewTarget(true);
  Target* dead = NewTarget(false);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Send(healthy));
    if (i % 20 == 0) {
      ASSERT_TRUE(Send(dead));
    }
    if (i % 7 == 0) Pass();
  }
  ASSERT_TRUE(Send(healthy, /*notify=*/true));
  while (received_[0].size() < 201 || pool_->counters().stream_resets < 1) Pass();
  ExpectAllInOrder(healthy, 201);
  EXPECT_EQ(failed_[1], 1);
  EXPECT_EQ(quiet_[1], 1);
  EXPECT_EQ(failed_[0], 0);
  EXPECT_EQ(pool_->counters().dci_recoveries, 0u);
  EXPECT_EQ(pool_->counters().flushed, 9u);  // the dead peer's others
  EXPECT_NE(last_failure_.message().find("IBV_WC_RETRY_EXC_ERR"), absl::string_view::npos);
  EXPECT_EQ(base::DetailOf(last_failure_)->peer(), "target 1");
  EXPECT_EQ(slots_->free_data(), kSlots);
}

TEST_F(DciPoolTest, WithoutStreamsTheDciIsRecoveredAndHealthyPeersLoseNothing) {
  Start({.dci_count = 1, .use_streams = false});
  Target* healthy = NewTarget(true);
  Target* dead = NewTarget(false);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Send(healthy));
    if (i == 10 || i == 50) {
      ASSERT_TRUE(Send(dead));
    }
  }
  ASSERT_TRUE(Send(healthy, /*notify=*/true));
  while (log_.empty()) Pass();
  while (received_[0].size() < 101) Pass();
  ExpectAllInOrder(healthy, 101);
  EXPECT_EQ(failed_[1], 1);
  EXPECT_EQ(quiet_[1], 1);
  EXPECT_EQ(pool_->counters().dci_recoveries, 1u);
  EXPECT_EQ(pool_->counters().reposted, 90u);
  EXPECT_EQ(slots_->free_data(), kSlots);
}

TEST_F(DciPoolTest, MorePeersThanStreamsTakeTurns) {
  Start({.dci_count = 1, .max_log_streams = 1});
  std::vector<Target*> targets;
  for (int i = 0; i < 10; ++i) targets.push_back(NewTarget(true));
  for (int i = 0; i < 40; ++i) {
    for (Target* target : targets) ASSERT_TRUE(Send(target, /*notify=*/i == 39));
  }
  while (log_.size() < targets.size()) Pass();
  for (Target* target : targets) {
    while (received_[target->cookie].size() < 40) Pass();
    ExpectAllInOrder(target, 40);
  }
  EXPECT_EQ(slots_->free_data(), kSlots);
}

// Random peers, some dead from the start, over every combination of streams: healthy ones get
// everything in order once, dead ones fail once, and no slot is lost.
TEST_F(DciPoolTest, HealthyPeersGetEverythingWhateverDies) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    pool_.reset();
    targets_.clear();
    sent_.clear();
    received_.clear();
    failed_.clear();
    quiet_.clear();
    log_.clear();
    ah_.reset();
    slots_.reset();
    memory_ = {};
    receive_.reset();
    receive_cq_.reset();
    cq_.reset();
    device_.reset();
    base::SeededRandom random(seed);
    Start({.dci_count = 1 + static_cast<uint32_t>(seed % 3),
           .send_depth = 64,
           .max_log_streams = static_cast<uint8_t>(1 + random.Below(4)),
           .use_streams = random.Below(4) != 0});
    std::vector<Target*> alive, all;
    for (int i = 0; i < 12; ++i) {
      const bool lives = random.Below(3) != 0 || i == 0;
      all.push_back(NewTarget(lives));
      if (lives) alive.push_back(all.back());
    }
    for (int i = 0; i < 2'000; ++i) {
      Target* target = all[random.Below(all.size())];
      if (target->closed) continue;
      while (!Send(target)) Pass();
      if (random.Below(10) == 0) Pass();
    }
    for (Target* target : alive) {
      while (!Send(target, /*notify=*/true)) Pass();
    }
    size_t dead_used = 0;
    for (Target* target : all) {
      if (target->dctn[0] == kNobodysDctn && sent_[target->cookie] != 0) ++dead_used;
    }
    while (log_.size() < alive.size() || failed_.size() < dead_used ||
           slots_->free_data() != kSlots) {
      Pass();
      ASSERT_FALSE(HasFatalFailure());
    }
    for (Target* target : alive) {
      while (received_[target->cookie].size() < sent_[target->cookie]) Pass();
      ExpectAllInOrder(target, sent_[target->cookie]);
    }
    for (const auto& [cookie, count] : failed_) EXPECT_EQ(count, 1) << cookie;
  }
}

TEST_F(DciPoolTest, ClosingFreesWhatWaits) {
  Start({.dci_count = 1, .max_log_streams = 1});
  Target* a = NewTarget(true);
  Target* b = NewTarget(true);
  Target* c = NewTarget(true);
  for (Target* target : {a, b, c}) {
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(Send(target));
  }
  EXPECT_TRUE(c->has_pending());  // two streams, both taken
  EXPECT_EQ(c->posted, 0u);
  pool_->Close(c);
  EXPECT_FALSE(c->has_pending());
  EXPECT_EQ(slots_->free_data(), kSlots - 10);
  EXPECT_EQ(quiet_.count(2), 0u);  // it may go at once
  // A closed target takes nothing.
  ASSERT_TRUE(Send(c, /*notify=*/true));
  EXPECT_EQ(log_, std::vector<std::string>{"target 2 not sent"});
  pool_->Close(a);
  pool_->Close(b);
  while (quiet_[0] == 0 || quiet_[1] == 0) Pass();
}

TEST(DeriveTimeout, StaysWithinTheBoundAndAboveHalfOfIt) {
  for (int64_t bound_ns : {int64_t{1'000'000}, int64_t{50'000'000}, int64_t{1'000'000'000},
                           int64_t{7'777'777'777}, int64_t{600'000'000'000}}) {
    uint8_t timeout = 0, retries = 0;
    DeriveTimeout(bound_ns, &timeout, &retries);
    const int64_t total_ns = (int64_t{4096} << timeout) * (retries + 1);
    EXPECT_LE(total_ns, bound_ns);
    EXPECT_GT(2 * total_ns, bound_ns);
    EXPECT_LE(timeout, 31);
  }
}

}  // namespace
}  // namespace sluice::queue
