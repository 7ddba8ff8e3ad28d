// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs of peers, between two sets of queues on the software NIC in this process.
#include "transport/queue/rc_queues.h"

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/memory/slab.h"
#include "transport/receive/receive_queue.h"
#include "transport/softdc/verbs.h"

namespace sluice::queue {
namespace rc_queues_test {

constexpr uint32_t kBufferBytes = 64;
constexpr uint32_t kDataSlots = 64;
constexpr uint32_t kControlSlots = 8;
constexpr uint32_t kReceives = 32;

// One side: queues, what it receives with, and what it was told.
struct Side : QueueUser {
  Side() {
    auto opened = device::Device::Open("softdc0/rc", {&softdc::Verbs()});
    if (!opened.ok()) {
      ADD_FAILURE() << opened.status();
      return;
    }
    device = *std::move(opened);
    const verbs::VerbsApi& api = device->api();
    const size_t slot_count = kDataSlots + kControlSlots;
    cq = *verbs::CreateCq(api, device->context(), slot_count, nullptr);
    receive_cq = *verbs::CreateCq(api, device->context(), 256, nullptr);
    receive = *receive::ReceiveQueue::Create(
        *device, receive_cq.get(),
        {.depth = kReceives, .buffer_bytes = kBufferBytes, .dct = false});
    memory = *memory::Slab::Create(api, device->pd(), slot_count * kBufferBytes, 0);
    slots.emplace(memory.data(), kDataSlots, kBufferBytes,
                  memory.data() + kDataSlots * kBufferBytes, kControlSlots, kBufferBytes);
    queues = std::make_unique<RcQueues>(*device, cq.get(), *slots, memory.lkey(),
                                        RcOptions{.send_depth = 8}, commands, *this);
  }
  ~Side() override {
    commands.Finish();
    queues.reset();
  }

  void Attach(Target* target, const char* name) {
    target->name = name;
    auto qp = queues->Make(receive_cq.get(), receive->srq());
    ASSERT_TRUE(qp.ok()) << qp.status();
    ASSERT_TRUE(queues->Attach(target, *std::move(qp)).ok());
    queues->Open(target);
  }
  void Send(Target* target, std::string_view text, bool control = false, bool notify = false,
            bool in_order = false) {
    const uint32_t index = slots->Take(control);
    ASSERT_NE(index, kNoSlot);
    Slot& slot = (*slots)[index];
    std::memcpy(slot.data, text.data(), text.size());
    slot.length_bytes = static_cast<uint32_t>(text.size());
    slot.notify = notify;
    slot.in_order = in_order;
    queues->Post(target, index);
    if (!control) queues->Release(index);
  }
  void Pass() {
    commands.Drain();
    queues->Flush();
    Receive();
    if (queues->stopping()) queues->DestroyStopped();
    queues->Poll();
  }
  void Receive() {
    ibv_wc wc[kReceives];
    for (int i = 0, got = ibv_poll_cq(receive_cq.get(), kReceives, wc); i < got; ++i) {
      ASSERT_EQ(wc[i].status, IBV_WC_SUCCESS);
      const auto index = static_cast<uint32_t>(wc[i].wr_id);
      received.emplace_back(reinterpret_cast<const char*>(receive->buffer(index)), wc[i].byte_len);
      receive->Recycle(index);
    }
    receive->Refill();
  }
  bool AllFree() const { return slots->free_data() + slots->free_control() == slots->size(); }

  void OnSent(Target* target, uint32_t, bool ok) override {
    log.push_back(target->name.str() + (ok ? " sent" : " not sent"));
  }
  void OnTargetReset(Target*, const absl::Status&) override { ADD_FAILURE() << "no resend on RC"; }
  void OnTargetFailed(Target* target, const absl::Status& why) override {
    log.push_back(target->name.str() + " failed");
    reason = why;
  }
  void OnUnanswered(Target*) override { ADD_FAILURE() << "every doorbell asks"; }
  void OnTargetQuiet(Target* target) override { log.push_back(target->name.str() + " quiet"); }
  void OnQueueDead(const absl::Status& why) override {
    log.push_back("dead");
    reason = why;
  }

  std::unique_ptr<device::Device> device;
  verbs::Cq cq, receive_cq;
  std::unique_ptr<receive::ReceiveQueue> receive;
  memory::Slab memory;
  std::optional<SlotTable> slots;
  poller::InlineCommands commands;
  std::unique_ptr<RcQueues> queues;
  std::vector<std::string> received;
  std::vector<std::string> log;
  absl::Status reason;
};

void ConnectTo(Side& from, const Target& own, const Side& to, const Target& other) {
  verbs::RcRoute route{.ah = verbs::AddressVector(from.device->path()),
                       .number = to.queues->qp(other)->qp_num,
                       .receive_psn = 7,
                       .send_psn = 7};
  from.device->api().query_gid(to.device->context(), 1, to.device->path().sgid_index,
                               &route.ah.grh.dgid);
  const absl::Status status = from.queues->Connect(from.queues->qp(own), route);
  ASSERT_TRUE(status.ok()) << status;
}

class RcQueuesTest : public testing::Test {
 protected:
  void SetUp() override {
    a_.Attach(&to_b_, "b");
    b_.Attach(&to_a_, "a");
    ConnectTo(a_, to_b_, b_, to_a_);
    ConnectTo(b_, to_a_, a_, to_b_);
    b_number_ = b_.queues->number(to_a_);
  }
  void PassUntil(const std::function<bool()>& done) {
    while (!done() && !HasFailure()) {
      a_.Pass();
      b_.Pass();
    }
  }

  Target to_b_, to_a_;  // outlive the sides
  uint32_t b_number_ = 0;
  Side a_, b_;
};

TEST_F(RcQueuesTest, MoreMessagesThanAQueuePairHoldsArriveInOrderBothWays) {
  constexpr int kMessages = 40;  // of a send depth of 8
  for (int i = 0; i < kMessages; ++i) {
    a_.Send(&to_b_, "to b " + std::to_string(i));
    b_.Send(&to_a_, "to a " + std::to_string(i));
  }
  EXPECT_TRUE(a_.queues->scarce(to_b_));
  PassUntil([&] { return a_.received.size() == kMessages && b_.received.size() == kMessages; });
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(b_.received[i], "to b " + std::to_string(i));
    EXPECT_EQ(a_.received[i], "to a " + std::to_string(i));
  }
  PassUntil([&] { return a_.AllFree() && b_.AllFree(); });
  EXPECT_FALSE(a_.queues->busy());
}

TEST_F(RcQueuesTest, ControlPassesDataThatWaitsAndAGoodbyeOrAnAnswerDoesNot) {
  for (int i = 0; i < 10; ++i) a_.Send(&to_b_, "data");
  a_.Send(&to_b_, "goodbye", /*control=*/true, /*notify=*/true);
  a_.Send(&to_b_, "answer", /*control=*/true, /*notify=*/false, /*in_order=*/true);
  a_.Send(&to_b_, "credits", /*control=*/true);
  PassUntil([&] { return b_.received.size() == 13 && !a_.log.empty(); });
  EXPECT_EQ(b_.received[8], "credits");
  EXPECT_EQ(b_.received[11], "goodbye");
  EXPECT_EQ(b_.received[12], "answer");
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b sent"}));
}

TEST_F(RcQueuesTest, AClosedTargetFreesWhatWaitsAndItsQueuePairEnds) {
  for (int i = 0; i < 20; ++i) a_.Send(&to_b_, "data");
  a_.queues->Close(&to_b_);
  PassUntil([&] { return a_.AllFree(); });
  EXPECT_EQ(to_b_.posted, 0);
  EXPECT_TRUE(a_.queues->Reports().empty());
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b quiet"}));
  Target again;  // takes the same place
  a_.Attach(&again, "again");
  EXPECT_EQ(again.dci, to_b_.dci);
}

TEST_F(RcQueuesTest, APeerWithoutAQueuePairFailsByNameAndEverySlotComesBack) {
  b_.queues->Close(&to_a_);
  PassUntil([&] { return b_.queues->Reports().empty(); });
  for (int i = 0; i < 20; ++i) a_.Send(&to_b_, "data");
  PassUntil([&] { return a_.AllFree() && !a_.log.empty() && a_.log.back() == "b quiet"; });
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b failed", "b quiet"}));
  EXPECT_NE(std::string(a_.reason.message()).find("RC queue pair 0x"), std::string::npos)
      << a_.reason;
  EXPECT_EQ(a_.queues->counters().failed, 1u);
  EXPECT_TRUE(to_b_.closed);
}

// The queue pair of a side that closes goes to ERR first: destroyed at once it would take unread completions with it.
TEST_F(RcQueuesTest, WhatArrivedBeforeTheEndIsReceived) {
  constexpr size_t kMessages = 8;
  for (size_t i = 0; i < kMessages; ++i) a_.Send(&to_b_, "before the end");
  while (!a_.AllFree()) a_.Pass();  // b looks at nothing
  EXPECT_TRUE(b_.received.empty());
  b_.queues->Close(&to_a_);
  PassUntil([&] { return b_.queues->Find(b_number_) == nullptr && !b_.queues->stopping(); });
  b_.Pass();
  EXPECT_EQ(b_.received.size(), kMessages);
}

TEST_F(RcQueuesTest, ATargetIsFoundByItsNumberUntilItEnds) {
  EXPECT_EQ(a_.queues->Find(a_.queues->number(to_b_)), &to_b_);
  EXPECT_EQ(a_.queues->Find(b_number_ + 0x100), nullptr);
  const uint32_t number = a_.queues->number(to_b_);
  a_.queues->Close(&to_b_);
  EXPECT_EQ(a_.queues->Find(number), nullptr);
}

TEST_F(RcQueuesTest, WatchGivesUpAQueuePairThatOwesACompletion) {
  // The other side posts no receive buffer again, and the device waits for one for ever.
  for (uint32_t i = 0; i < kReceives; ++i) {
    a_.Send(&to_b_, "taken");
    while (!a_.AllFree()) {
      a_.Pass();
      b_.queues->Poll();
    }
  }
  a_.log.clear();
  a_.Send(&to_b_, "data");
  a_.queues->Flush();
  int64_t now_ns = 1;
  EXPECT_TRUE(a_.queues->Watch(now_ns));
  for (int64_t i = 0; i < RcQueues::kWatchAttempts; ++i) {
    EXPECT_TRUE(a_.log.empty());
    now_ns += a_.queues->WatchPeriodNs();
    a_.queues->Watch(now_ns);
  }
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b failed"}));
  EXPECT_EQ(a_.queues->counters().stuck_dcis, 1u);
  PassUntil([&] { return a_.AllFree(); });
}

TEST_F(RcQueuesTest, WatchFindsTheCompletionsThatALatePollerHasNotTaken) {
  a_.Send(&to_b_, "data", /*control=*/true, /*notify=*/true);
  a_.queues->Flush();
  EXPECT_TRUE(a_.queues->Watch(1));
  while (b_.received.empty()) b_.Pass();
  // The acknowledgement comes before the reply.
  b_.Send(&to_a_, "reply");
  while (a_.received.empty()) {
    b_.Pass();
    a_.Receive();
  }
  a_.queues->Watch(2 * RcQueues::kWatchAttempts * a_.queues->WatchPeriodNs());
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b sent"}));
  EXPECT_EQ(a_.queues->counters().stuck_dcis, 0u);
}

TEST_F(RcQueuesTest, AbandonEndsAllQueuePairsAndSaysSo) {
  a_.Send(&to_b_, "data");
  a_.queues->Abandon(absl::UnavailableError("the device has failed"));
  EXPECT_EQ(a_.log, (std::vector<std::string>{"b failed", "dead"}));
  PassUntil([&] { return a_.AllFree() && a_.queues->Reports().empty(); });
}

}  // namespace rc_queues_test
}  // namespace sluice::queue
