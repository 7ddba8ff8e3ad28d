// SPDX-License-Identifier: Apache-2.0
//
// What may go wrong with a stop: the event is lost or late, the queue is in ERR instead, the cancellation takes nothing, a
// command is refused, the peer dies. A wrong transfer's OK is never sent, every transfer ends once.
#include <cerrno>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/integrity/signed_pair.h"

namespace sluice::integrity {
namespace stop_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;
using testing::UnorderedElementsAreArray;
using Kind = Transfer::Kind;
using Simulation = softdc::sim::Simulation;

constexpr Protection kCrc{.memory = Guard::kCrc32c, .block_bytes = 512};
constexpr size_t kStride = 4096;

// What the device answers, if not what the simulation does.
struct Answers {
  int cancel = 1;          // replaces what was cancelled, unless 1
  bool cancel_too = true;  // whether it is cancelled in any case
  int resume = 0;
  int query = 0;
  int cancels = 0;
  int queries = 0;
};
Answers answers;
ibv_qp* g_qp = nullptr;  // the store's
std::vector<mlx5dv_mkey*> g_keys;

const verbs::VerbsApi& WatchedVerbs() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = Simulation::Verbs();
    api.dv_qp_cancel_posted_send_wrs = [](mlx5dv_qp_ex* dv, uint64_t wr_id) {
      ++answers.cancels;
      const int taken =
          answers.cancel_too ? Simulation::Verbs().dv_qp_cancel_posted_send_wrs(dv, wr_id) : 0;
      return answers.cancel == 1 ? taken : answers.cancel;
    };
    api.dv_create_qp = [](ibv_context* context, ibv_qp_init_attr_ex* attr,
                          mlx5dv_qp_init_attr* dv) {
      return g_qp = Simulation::Verbs().dv_create_qp(context, attr, dv);
    };
    api.dv_create_mkey = [](mlx5dv_mkey_init_attr* attr) {
      g_keys.push_back(Simulation::Verbs().dv_create_mkey(attr));
      return g_keys.back();
    };
    api.dv_destroy_mkey = [](mlx5dv_mkey* key) {
      std::erase(g_keys, key);
      return Simulation::Verbs().dv_destroy_mkey(key);
    };
    api.modify_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask) {
      if (answers.resume != 0 && (mask & IBV_QP_CUR_STATE) != 0) return answers.resume;
      return Simulation::Verbs().modify_qp(qp, attr, mask);
    };
    api.query_qp = [](ibv_qp* qp, ibv_qp_attr* attr, int mask, ibv_qp_init_attr* init) {
      ++answers.queries;
      if (answers.query != 0) return answers.query;
      return Simulation::Verbs().query_qp(qp, attr, mask, init);
    };
    return api;
  }();
  return table;
}

class StopTest : public testing::Test {
 protected:
  void SetUp() override {
    answers = {};
    SignedPairOptions options;
    options.api = &WatchedVerbs();
    pair_ = std::make_unique<SignedPair>(options);
    ASSERT_EQ(store().queue->mode(), Mode::kPipelined);
  }
  void Post(uint64_t cookie, bool bad) {
    const size_t offset = cookie * kStride;
    std::vector<std::byte> data(1024);
    Fill(pair_->random(), data);
    auto bytes = Protected(kCrc, data);
    if (bad) bytes[600] ^= std::byte{1};
    std::ranges::copy(bytes, store().at(offset, kStride).begin());
    ASSERT_TRUE(pair_->Post(pair_->Plan(Kind::kWrite, kCrc, offset, 1024, cookie)).ok());
  }
  void Flush() { pair_->Flush(); }
  void TellDrained() {
    const auto as = pair_->As(0);
    store().queue->OnDeviceEvent(
        {.type = IBV_EVENT_SQ_DRAINED, .reaction = device::Reaction::kCount, .object = g_qp});
  }
  void Settle() {
    pair_->Run([] { return false; });
  }
  void ExpectDown(const std::string& why) {
    ASSERT_EQ(store().downs.size(), 1u);
    EXPECT_THAT(std::string(store().downs[0].message()), HasSubstr(why));
    EXPECT_EQ(store().queue->state(), QueueState::kDown);
    EXPECT_EQ(store().queue->open(), 0u);
    for (const auto& [cookie, end] : store().ended) EXPECT_EQ(end.times, 1) << cookie;
  }
  SignedEnd& store() { return pair_->store; }
  SignedEnd& client() { return pair_->client; }

  std::unique_ptr<SignedPair> pair_;
};

TEST_F(StopTest, EveryWrongOneIsCancelledAndTheQueueRunsAgain) {
  for (uint64_t i = 0; i < 4; ++i) Post(i, i % 2 == 1);
  Settle();
  EXPECT_THAT(client().replies, UnorderedElementsAre("ok 0", "ok 2", "bad 1", "bad 3"));
  EXPECT_EQ(answers.cancels, 2);
  EXPECT_EQ(store().queue->state(), QueueState::kRunning);
  EXPECT_GE(store().queue->counters().stops, 1u);
}

// The queue has a place for the error reply of each transfer that it takes, besides what configures a key for two domains.
TEST_F(StopTest, EveryTransferOfAFullQueueIsWrong) {
  constexpr uint32_t kOpen = 25;  // queues have powers of two, and this is little below one
  pair_.reset();
  SignedPairOptions options;
  options.api = &WatchedVerbs();
  options.queue.max_open = options.queue.max_replies = kOpen;
  pair_ = std::make_unique<SignedPair>(options);
  const Protection both{.memory = Guard::kCrc32c, .wire = Guard::kT10DifCrc, .block_bytes = 512};
  std::vector<std::string> expected;
  for (uint64_t i = 0; i < kOpen; ++i) {
    // Zeros, whose CRC is not zero.
    ASSERT_TRUE(pair_->Post(pair_->Plan(Kind::kWrite, both, i * kStride, 1024, i)).ok());
    expected.push_back("bad " + std::to_string(i));
  }
  Settle();
  EXPECT_THAT(client().replies, UnorderedElementsAreArray(expected));
  EXPECT_EQ(answers.cancels, static_cast<int>(expected.size()));
  EXPECT_EQ(store().queue->state(), QueueState::kRunning);
}

// Nobody looks while a good transfer and its OK end and the next one stops the queue.
TEST_F(StopTest, TransferAndItsReplyAreDoneWhenTheStopIsLookedInto) {
  Post(1, false);
  Flush();
  Post(2, true);
  Flush();
  Post(3, false);
  Flush();
  pair_->simulation->RunFor(1'000'000);
  EXPECT_THAT(store().ended, IsEmpty());
  TellDrained();
  pair_->simulation->RunFor(1'000'000);
  Settle();
  EXPECT_THAT(client().replies, ElementsAre("ok 1", "ok 3", "bad 2"));
  EXPECT_EQ(answers.cancels, 1);
  EXPECT_EQ(store().queue->counters().stops, 1u);
  for (const uint64_t cookie : {1, 2, 3}) EXPECT_EQ(store().ended[cookie].times, 1) << cookie;
  EXPECT_TRUE(store().ended[1].status.ok());
  EXPECT_EQ(store().queue->state(), QueueState::kRunning);
}

TEST_F(StopTest, LostEventIsFoundByTheWatch) {
  store().deaf = true;
  Post(1, true);
  Post(2, false);
  Settle();
  EXPECT_THAT(client().replies, IsEmpty());
  EXPECT_EQ(store().queue->state(), QueueState::kRunning) << "nobody has said otherwise";
  {
    const auto as = pair_->As(0);
    store().queue->Watch();  // things have completed since the last one, or so it may be
    store().queue->Watch();
  }
  EXPECT_EQ(store().queue->state(), QueueState::kAsking);
  Settle();
  EXPECT_THAT(client().replies, UnorderedElementsAre("bad 1", "ok 2"));
  EXPECT_EQ(store().queue->state(), QueueState::kRunning);
}

TEST_F(StopTest, WatchLeavesAQueueAloneThatHasNothingOpen) {
  Post(1, false);
  Settle();
  const auto as = pair_->As(0);
  for (int i = 0; i < 3; ++i) store().queue->Watch();
  EXPECT_EQ(answers.queries, 0);
}

TEST_F(StopTest, LateEventOfAStopThatIsOverIsHarmless) {
  Post(1, true);
  Settle();
  ASSERT_THAT(client().replies, ElementsAre("bad 1"));
  Post(2, false);
  {
    const auto as = pair_->As(0);
    device::DeviceEvent event{.type = IBV_EVENT_SQ_DRAINED, .reaction = device::Reaction::kCount};
    store().queue->OnDeviceEvent(event);  // about no object
    EXPECT_EQ(store().queue->state(), QueueState::kRunning);
  }
  const uint64_t asked = store().queue->counters().state_queries;
  store().deaf = true;
  TellDrained();
  EXPECT_EQ(store().queue->state(), QueueState::kAsking);
  Settle();
  EXPECT_EQ(store().queue->counters().state_queries, asked + 1);
  EXPECT_THAT(client().replies, ElementsAre("bad 1", "ok 2"));
  EXPECT_EQ(store().queue->counters().stops, 1u);
}

// The event of the next stop comes while the last one is still being looked into.
TEST_F(StopTest, EventDuringAStopIsLookedIntoAfterwards) {
  Post(1, true);
  Settle();
  TellDrained();
  TellDrained();
  const uint64_t asked = store().queue->counters().state_queries;
  Settle();
  EXPECT_EQ(store().queue->counters().state_queries, asked + 1);
  EXPECT_EQ(store().queue->state(), QueueState::kRunning);
}

TEST_F(StopTest, CancellationThatIsRefusedEndsTheQueueWithoutTheOk) {
  answers.cancel = -EINVAL;
  answers.cancel_too = false;
  Post(1, true);
  Post(2, false);
  Settle();
  ExpectDown("can't be cancelled (errno 22)");
  EXPECT_THAT(client().replies, IsEmpty());
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(MismatchOf(store().ended[1].status).has_value());
  EXPECT_FALSE(store().ended[1].replied);
  EXPECT_EQ(store().ended[2].status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(StopTest, CancellationThatTakesNothingEndsTheQueue) {
  answers.cancel = 0;
  answers.cancel_too = false;
  Post(1, true);
  Settle();
  ExpectDown("0 were cancelled");
  EXPECT_THAT(client().replies, IsEmpty());
}

TEST_F(StopTest, QueueThatCannotGoOnEnds) {
  answers.resume = EIO;
  Post(1, true);
  Post(2, false);
  Settle();
  ExpectDown("SQD to RTS");
  EXPECT_THAT(client().replies, IsEmpty());
  EXPECT_FALSE(store().ended[1].replied);
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kDataLoss);
}

TEST_F(StopTest, QueryThatFailsEndsTheQueue) {
  answers.query = ENOMEM;
  Post(1, true);
  Settle();
  ExpectDown("ibv_query_qp");
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kDataLoss)
      << "what the last look finds";
}

TEST_F(StopTest, ErrInsteadOfSqd) {
  Post(1, true);
  store().deaf = true;
  Settle();
  {
    const auto as = pair_->As(0);
    ASSERT_TRUE(verbs::StopRc(Simulation::Verbs(), g_qp).ok());
  }
  TellDrained();
  Settle();
  ASSERT_EQ(store().downs.size(), 1u);
  EXPECT_THAT(client().replies, IsEmpty());
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_FALSE(store().ended[1].replied);
}

TEST_F(StopTest, StopThatNobodyCausedEndsTheQueue) {
  Post(1, true);
  store().deaf = true;
  Settle();
  {
    // Somebody else has read the news.
    const auto as = pair_->As(0);
    mlx5dv_mkey_err error{};
    for (mlx5dv_mkey* key : g_keys) Simulation::Verbs().dv_mkey_check(key, &error);
  }
  TellDrained();
  Settle();
  ExpectDown("no open transfer is wrong");
  EXPECT_THAT(client().replies, IsEmpty());
}

TEST_F(StopTest, PeerThatDiesDuringAStopEndsEverything) {
  Post(1, true);
  Post(2, false);
  Flush();
  ASSERT_TRUE(pair_->Run([&] { return store().queue->state() == QueueState::kCancelling; }));
  pair_->simulation->Kill(1);
  pair_->Run([&] { return !store().downs.empty(); });
  EXPECT_EQ(store().ended[1].times, 1);
  EXPECT_EQ(store().ended[2].times, 1);
  EXPECT_EQ(store().ended[1].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store().queue->state(), QueueState::kDown);
}

TEST_F(StopTest, FailEndsOpenTransfersOnceTheDeviceCannotReachTheirMemory) {
  Post(1, false);
  Post(2, true);
  Flush();
  bool gone = false;
  store().on_end = [&](uint64_t) { gone = store().queue->state() == QueueState::kDown; };
  {
    const auto as = pair_->As(0);
    store().queue->Fail(absl::CancelledError("enough"));
    store().queue->Fail(absl::CancelledError("again"));
  }
  Settle();
  EXPECT_TRUE(gone);
  EXPECT_THAT(store().downs, ElementsAre(absl::CancelledError("enough")));
  EXPECT_EQ(store().ended.size(), 2u);
  EXPECT_FALSE(store().ended[2].status.ok());
}

}  // namespace stop_test
}  // namespace sluice::integrity
