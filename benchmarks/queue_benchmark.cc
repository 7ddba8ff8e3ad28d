// SPDX-License-Identifier: Apache-2.0
//
// DciPool and ReceiveQueue over the software NIC, one process: what posting a message, and giving
// its receive buffer back, cost above the plain verbs of softdc_benchmark.
#include <benchmark/benchmark.h>

#include <chrono>
#include <memory>
#include <vector>

#include "benchmarks/dc_side.h"
#include "transport/memory/slab.h"
#include "transport/poller/commands.h"
#include "transport/queue/dci_pool.h"
#include "transport/receive/receive_queue.h"
#include "transport/softdc/verbs.h"

namespace sluice::queue {
namespace {

using benchmarks::Check;
using benchmarks::CheckOk;

constexpr uint32_t kSlots = 512;
constexpr uint32_t kBufferBytes = 128;
constexpr uint32_t kMessageBytes = 64;
constexpr uint32_t kDepth = 1024;

class Fixture : QueueUser {
 public:
  Fixture() {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    CheckOk(opened.status());
    device_ = *std::move(opened);
    const verbs::VerbsApi& api = device_->api();
    send_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
    receive_cq_ = *verbs::CreateCq(api, device_->context(), 4096, nullptr);
    auto receive = receive::ReceiveQueue::Create(
        *device_, receive_cq_.get(),
        {.depth = kDepth, .buffer_bytes = kBufferBytes, .access_key = 42});
    CheckOk(receive.status());
    receive_ = *std::move(receive);
    memory_ = *memory::Slab::Create(api, device_->pd(), (kSlots + 16) * kBufferBytes, 0);
    slots_ = std::make_unique<SlotTable>(memory_.data(), kSlots, kBufferBytes,
                                         memory_.data() + kSlots * kBufferBytes, 16, kBufferBytes);
    auto pool = DciPool::Create(*device_, send_cq_.get(), *slots_, memory_.lkey(),
                                {.dead_peer_ns = 30'000'000'000}, commands_, *this);
    CheckOk(pool.status());
    pool_ = *std::move(pool);
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.sgid_index = device_->path().sgid_index;
    attr.grh.hop_limit = 64;
    Check(api.query_gid(device_->context(), 1, attr.grh.sgid_index, &attr.grh.dgid) == 0,
          "query_gid");
    ah_ = {&api, api.create_ah(device_->pd(), &attr)};
    Check(static_cast<bool>(ah_), "create_ah");
    target_.ah = ah_.get();
    target_.dctn[0] = receive_->dctn();
    target_.key[0] = 42;
    target_.name = "benchmark";
    pool_->Open(&target_);
    pool_->Acknowledged(&target_);  // no probation
    // The way there is found with the first message, which may take a while.
    Post();
    do {
      FlushAndPoll();
    } while (Receive(nullptr) == 0);
  }

  void Post() {
    const uint32_t slot = slots_->Take(false);
    Check(slot != kNoSlot, "taking a slot");
    (*slots_)[slot].length_bytes = kMessageBytes;
    pool_->Post(&target_, slot);
    pool_->Release(slot);  // as if it were acknowledged by the time it is complete
  }
  void FlushAndPoll() {
    pool_->Flush();
    pool_->Poll();
  }
  // Takes what has arrived; recycles it, or keeps the indices.
  int Receive(std::vector<uint32_t>* keep) {
    ibv_wc completions[32];
    const int count = ibv_poll_cq(receive_cq_.get(), 32, completions);
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<uint32_t>(completions[i].wr_id);
      if (keep == nullptr) {
        receive_->Recycle(index);
      } else {
        keep->push_back(index);
      }
    }
    return count;
  }
  receive::ReceiveQueue& receive() { return *receive_; }

 private:
  void OnSent(Target*, uint32_t, bool) override {}
  void OnTargetReset(Target*, const absl::Status&) override {}
  void OnUnanswered(Target*) override {}
  void OnTargetFailed(Target*, const absl::Status& why) override { CheckOk(why); }
  void OnTargetQuiet(Target*) override {}
  void OnQueueDead(const absl::Status& why) override { CheckOk(why); }

  std::unique_ptr<device::Device> device_;
  poller::InlineCommands commands_;
  verbs::Cq send_cq_, receive_cq_;
  std::unique_ptr<receive::ReceiveQueue> receive_;
  memory::Slab memory_;
  std::unique_ptr<SlotTable> slots_;
  verbs::Ah ah_;
  Target target_;
  std::unique_ptr<DciPool> pool_;
};

void BM_QueuePostAndReceive(benchmark::State& state) {
  Fixture fixture;
  const auto batch = static_cast<int>(state.range(0));
  for (auto _ : state) {
    for (int i = 0; i < batch; ++i) fixture.Post();
    fixture.FlushAndPoll();
    for (int received = 0; received < batch;) received += fixture.Receive(nullptr);
  }
  state.SetItemsProcessed(state.iterations() * batch);
}
BENCHMARK(BM_QueuePostAndReceive)->ArgName("batch")->Arg(1)->Arg(16);

void BM_QueueIdlePoll(benchmark::State& state) {
  Fixture fixture;
  for (auto _ : state) fixture.FlushAndPoll();
}
BENCHMARK(BM_QueueIdlePoll);

// Only the giving back is timed: buffers must first be filled, which is not.
void BM_ReceiveRefill(benchmark::State& state) {
  constexpr int kBatch = 256;
  Fixture fixture;
  std::vector<uint32_t> taken;
  for (auto _ : state) {
    taken.clear();
    while (taken.size() < kBatch) {
      for (int i = 0; i < 16; ++i) fixture.Post();
      fixture.FlushAndPoll();
      const size_t goal = taken.size() + 16;
      while (taken.size() < goal) fixture.Receive(&taken);
    }
    const auto start = std::chrono::steady_clock::now();
    for (const uint32_t index : taken) fixture.receive().Recycle(index);
    fixture.receive().Refill();
    state.SetIterationTime(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
BENCHMARK(BM_ReceiveRefill)->UseManualTime();

}  // namespace
}  // namespace sluice::queue
