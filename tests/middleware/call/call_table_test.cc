// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/call_table.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/error.h"

namespace sluice::call {
namespace call_table_test {

constexpr Method kMethod("/test.Service/Method");

class CallTableTest : public ::testing::Test {
 protected:
  static void Log(void* argument, const absl::Status& status) {
    static_cast<std::vector<std::string>*>(argument)->push_back(std::string(status.message()));
  }
  CallSpec Spec() {
    CallSpec spec;
    spec.method = &kMethod;
    spec.done = &CallTableTest::Log;
    spec.argument = &log_;
    return spec;
  }
  static void OnDeadline(void* owner, Call* call) {
    static_cast<CallTableTest*>(owner)->table_.End(call, CallEvent::kDeadline,
                                                   absl::DeadlineExceededError("late"));
  }

  void Advance(int64_t now_ns) {
    now_ns_ = now_ns;
    wheel_.Advance(now_ns);
  }

  int64_t now_ns_ = 0;
  base::TimerWheel wheel_{0, 1000};
  CallTable table_{4, &wheel_, &now_ns_, &CallTableTest::OnDeadline, this};
  std::vector<std::string> log_;
};

TEST_F(CallTableTest, FullTableRefuses) {
  std::vector<Call*> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(table_.Start(Spec(), kNoDeadlineNs));
  EXPECT_EQ(table_.Start(Spec(), kNoDeadlineNs), nullptr);
  EXPECT_EQ(table_.active(), 4u);
  table_.End(calls[2], CallEvent::kCancel, absl::CancelledError("two"));
  EXPECT_NE(table_.Start(Spec(), kNoDeadlineNs), nullptr);
  table_.EndAll(CallState::kWaiting, CallEvent::kCancel, absl::CancelledError("rest"),
                [](const Call&) { return true; });
  EXPECT_EQ(log_, (std::vector<std::string>{"two", "rest", "rest", "rest", "rest"}));
}

// `retry_safe` of the last attempt says nothing of the attempts before it.
TEST_F(CallTableTest, StatusIsNotRetrySafeIfAnEarlierAttemptMayHaveRun) {
  for (const bool may_have_run : {false, true}) {
    absl::Status ended;
    CallSpec spec = Spec();
    spec.argument = &ended;
    spec.done = [](void* argument, const absl::Status& status) {
      *static_cast<absl::Status*>(argument) = status;
    };
    const absl::Status refused =
        base::Error(absl::StatusCode::kUnavailable, "refused", {.layer = "t", .retry_safe = true});
    Connection connection(nullptr, {"s", 1}, 4096);
    Call* call = table_.StartSent(spec, kNoDeadlineNs);
    call->connection = &connection;
    connection.outstanding = 1;
    table_.Pause(call);
    call->may_have_run = may_have_run;
    table_.End(call, CallEvent::kFail, refused);
    EXPECT_EQ(ended.message(), refused.message());
    EXPECT_EQ(base::IsRetrySafe(ended), !may_have_run);
    // The next call in that place has one attempt.
    call = table_.StartSent(spec, kNoDeadlineNs);
    table_.End(call, CallEvent::kReply, refused);
    EXPECT_TRUE(base::IsRetrySafe(ended));
  }
}

TEST_F(CallTableTest, MoreOwnersHaveMorePlacesWhileCallsAreUnderWay) {
  for (const uint32_t capacity : {1u, 3u, 64u, 100u}) {
    CallTable table(capacity, &wheel_, &now_ns_, &CallTableTest::OnDeadline, this);
    std::vector<Call*> calls;
    for (uint32_t owners = 1; owners <= 5; ++owners) {
      table.AllowOwners(owners);
      table.AllowOwners(1);  // less than before: nothing
      EXPECT_EQ(table.limit(), capacity * owners);
      for (uint32_t i = 0; i < capacity; ++i) {
        calls.push_back(table.StartSent(Spec(), kNoDeadlineNs));
      }
      EXPECT_EQ(table.StartSent(Spec(), kNoDeadlineNs), nullptr);
    }
    for (Call* call : calls) {
      ASSERT_NE(call, nullptr);
      EXPECT_EQ(table.FindSent(CallTable::WireId(*call)), call);
      EXPECT_EQ(table.Find(CallTable::WireId(*call)), call);
    }
    // Numbers that a peer makes up.
    for (const uint32_t place : {5 * capacity, 5 * capacity + 1, 1024u, 0xfffffu}) {
      EXPECT_EQ(table.FindSent(uint64_t{1} << 32 | place), nullptr) << place;
      EXPECT_EQ(table.Find(uint64_t{1} << 32 | place), nullptr) << place;
    }
    for (Call* call : calls) table.End(call, CallEvent::kCancel, absl::CancelledError(""));
    EXPECT_EQ(table.active(), 0u);
  }
}

TEST_F(CallTableTest, OwnersEndWithTheNumbersOfCalls) {
  EXPECT_EQ(CallTable::MaxOwners(1), 1u << 20);
  EXPECT_EQ(CallTable::MaxOwners(1024), 1024u);
  EXPECT_EQ(CallTable::MaxOwners(1025), 1023u);
  EXPECT_EQ(CallTable::MaxOwners(CallTable::kMaxCapacity), 1u);
}

TEST_F(CallTableTest, CallsAreFoundByTheirOwner) {
  const int a = 0, b = 0;
  std::vector<Call*> calls;
  for (const int* owner : {&a, &b, &a}) {
    CallSpec spec = Spec();
    spec.owner = owner;
    calls.push_back(table_.Start(spec, kNoDeadlineNs));
  }
  table_.MarkSent(calls[0]);
  EXPECT_EQ(table_.IdsOf(&a),
            (std::vector<uint64_t>{CallTable::WireId(*calls[0]), CallTable::WireId(*calls[2])}));
  table_.End(calls[2], CallEvent::kCancel, absl::CancelledError("two"));
  EXPECT_EQ(table_.IdsOf(&a), (std::vector<uint64_t>{CallTable::WireId(*calls[0])}));
  table_.End(calls[0], CallEvent::kCancel, absl::CancelledError("zero"));
  table_.End(calls[1], CallEvent::kCancel, absl::CancelledError("one"));
}

TEST_F(CallTableTest, RefusedStartLeavesTheCallbackWithItsCaller) {
  for (int i = 0; i < 4; ++i) table_.Start(Spec(), kNoDeadlineNs);
  const auto held = std::make_shared<int>(0);
  Callback callback = [held](const absl::Status&) { ++*held; };
  CallSpec spec = Spec();
  spec.done = nullptr;
  spec.callback = &callback;
  EXPECT_EQ(table_.StartSent(spec, kNoDeadlineNs), nullptr);
  EXPECT_EQ(table_.Start(spec, kNoDeadlineNs), nullptr);
  ASSERT_TRUE(callback);
  std::move(callback)(absl::OkStatus());
  EXPECT_EQ(*held, 1);
  table_.EndAll(CallState::kWaiting, CallEvent::kCancel, absl::CancelledError("rest"),
                [](const Call&) { return true; });
}

TEST_F(CallTableTest, CallbackMayStartACallInItsPlaceAndIsGoneWhenItHasRun) {
  const auto held = std::make_shared<int>(0);
  Call* second = nullptr;
  Callback later = [held](const absl::Status& status) { *held += status.ok() ? 100 : 1000; };
  CallSpec next = Spec();
  next.done = nullptr;
  next.callback = &later;
  Callback callback = [&, held](const absl::Status& status) {
    EXPECT_TRUE(status.ok());
    second = table_.StartSent(next, kNoDeadlineNs);
    ++*held;  // what it holds is still there
  };
  CallSpec spec = Spec();
  spec.done = nullptr;
  spec.callback = &callback;
  Call* const first = table_.StartSent(spec, kNoDeadlineNs);
  const uint64_t id = CallTable::WireId(*first);
  EXPECT_FALSE(callback) << "it is the call's now";
  EXPECT_EQ(held.use_count(), 3);
  table_.EndOk(first);
  EXPECT_EQ(*held, 1);
  EXPECT_EQ(second, first) << "the same place";
  EXPECT_EQ(held.use_count(), 2) << "the first callback is gone, the second is not";
  EXPECT_EQ(table_.FindSent(id), nullptr);
  table_.End(second, CallEvent::kDeadline, absl::DeadlineExceededError("late"));
  EXPECT_EQ(*held, 1001);
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(table_.active(), 0u);
}

TEST_F(CallTableTest, CallOfTheCallbackOfADeadlineIsNotTheOneThatEnded) {
  int ended = 0;
  Callback callback = [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(status));
    ++ended;
    table_.StartSent(Spec(), 5'000'000);
  };
  CallSpec spec = Spec();
  spec.done = nullptr;
  spec.callback = &callback;
  table_.StartSent(spec, 1'000'000);
  Advance(2'000'000);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(table_.active(), 1u);
  Advance(6'000'000);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(log_, (std::vector<std::string>{"late"}));
  EXPECT_EQ(table_.active(), 0u);
}

TEST_F(CallTableTest, LateReplyFindsNobody) {
  Call* call = table_.Start(Spec(), kNoDeadlineNs);
  const uint64_t id = CallTable::WireId(*call);
  EXPECT_EQ(table_.FindSent(id), nullptr) << "nothing has been sent";
  EXPECT_EQ(table_.Find(id), call);
  table_.MarkSent(call);
  EXPECT_EQ(table_.FindSent(id), call);
  table_.End(call, CallEvent::kReply, absl::OkStatus());
  EXPECT_EQ(table_.FindSent(id), nullptr);
  Call* next = table_.Start(Spec(), kNoDeadlineNs);
  EXPECT_EQ(next, call) << "the same place";
  table_.MarkSent(next);
  EXPECT_EQ(table_.FindSent(id), nullptr) << "but another call";
  EXPECT_EQ(table_.FindSent(id | 0xffffffff), nullptr);
  EXPECT_EQ(table_.FindSent(0), nullptr);
  table_.End(next, CallEvent::kReply, absl::OkStatus());
}

TEST_F(CallTableTest, QueueIsFirstInFirstOutThroughRemovals) {
  Call* a = table_.Start(Spec(), kNoDeadlineNs);
  Call* b = table_.Start(Spec(), kNoDeadlineNs);
  Call* c = table_.Start(Spec(), kNoDeadlineNs);
  EXPECT_EQ(table_.FirstWaiting(), a);
  table_.End(b, CallEvent::kCancel, absl::CancelledError("b"));
  table_.MarkSent(a);
  EXPECT_EQ(table_.FirstWaiting(), c);
  Call* d = table_.Start(Spec(), kNoDeadlineNs);
  table_.MarkSent(c);
  EXPECT_EQ(table_.FirstWaiting(), d);
  EXPECT_EQ(table_.waiting(), 1u);
  table_.End(a, CallEvent::kReply, absl::OkStatus());
  table_.End(c, CallEvent::kReply, absl::OkStatus());
  table_.End(d, CallEvent::kFail, absl::UnavailableError("d"));
  EXPECT_EQ(table_.FirstWaiting(), nullptr);
}

TEST_F(CallTableTest, DeadlineEndsWaitingAndSentCalls) {
  table_.MarkSent(table_.Start(Spec(), 5000));
  table_.Start(Spec(), 7000);
  Call* ended = table_.Start(Spec(), 6000);
  table_.End(ended, CallEvent::kCancel, absl::CancelledError("early"));
  Advance(20000);
  EXPECT_EQ(log_, (std::vector<std::string>{"early", "late", "late"}));
  EXPECT_EQ(table_.active(), 0u);
}

TEST_F(CallTableTest, EndAllDoesNotVisitWhatCallbacksStart) {
  CallSpec again = Spec();
  struct State {
    CallTable* table;
    CallSpec spec;
    int started = 0;
  } state{&table_, Spec()};
  again.argument = &state;
  again.done = [](void* argument, const absl::Status&) {
    auto* state = static_cast<State*>(argument);
    if (state->table->Start(state->spec, kNoDeadlineNs) != nullptr) ++state->started;
  };
  table_.Start(again, kNoDeadlineNs);
  table_.Start(again, kNoDeadlineNs);
  const auto all = [](const Call&) { return true; };
  EXPECT_EQ(table_.EndAll(CallState::kWaiting, CallEvent::kFail, absl::UnavailableError("x"), all),
            2u);
  EXPECT_EQ(state.started, 2);
  EXPECT_EQ(table_.active(), 2u);
  EXPECT_EQ(table_.EndAll(CallState::kWaiting, CallEvent::kFail, absl::UnavailableError("x"), all),
            2u);
}

TEST_F(CallTableTest, EndAllCountsThoseThatItEnds) {
  observe::MethodStats stats(kMethod.id, kMethod.full_name);
  table_.Start(Spec(), kNoDeadlineNs)->stats = &stats;
  table_.Start(Spec(), kNoDeadlineNs)->stats = &stats;
  table_.EndAll(CallState::kWaiting, CallEvent::kFail, absl::UnavailableError("x"),
                [](const Call&) { return true; });
  EXPECT_EQ(stats.Snapshot().ended[static_cast<int>(absl::StatusCode::kUnavailable)], 2u);
}

// Whatever happens in whatever order: each call that was started ends once.
TEST(CallTableRaceTest, RandomEventsEndEachCallOnce) {
  struct Counter {
    int ended = 0;
  };
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    int64_t now = 0;
    base::TimerWheel wheel(0, 1000);
    CallTable* self = nullptr;
    CallTable table(
        16, &wheel, &now,
        [](void* owner, Call* call) {
          (*static_cast<CallTable**>(owner))
              ->End(call, CallEvent::kDeadline, absl::DeadlineExceededError(""));
        },
        &self);
    self = &table;
    std::vector<std::unique_ptr<Counter>> counters;
    std::vector<uint64_t> ids;  // all that ever were
    for (int step = 0; step < 5000; ++step) {
      switch (random() % 6) {
        case 0:
        case 1: {
          auto counter = std::make_unique<Counter>();
          CallSpec spec;
          spec.method = &kMethod;
          spec.done = [](void* argument, const absl::Status&) {
            ++static_cast<Counter*>(argument)->ended;
          };
          spec.argument = counter.get();
          Call* call =
              table.Start(spec, random() % 3 == 0 ? kNoDeadlineNs : now + 1 + random() % 40000);
          ASSERT_EQ(call == nullptr, table.active() == 16 && call == nullptr);
          if (call == nullptr) break;
          counters.push_back(std::move(counter));
          ids.push_back(CallTable::WireId(*call));
          break;
        }
        case 2:
          if (Call* call = table.FirstWaiting()) table.MarkSent(call);
          break;
        case 3:  // a reply, often to a call that has ended
          if (!ids.empty()) {
            const uint64_t id = ids[ids.size() - 1 - random() % std::min<size_t>(ids.size(), 40)];
            if (Call* call = table.FindSent(id))
              table.End(call, CallEvent::kReply, absl::OkStatus());
          }
          break;
        case 4:
          if (!ids.empty()) {
            if (Call* call = table.Find(ids[random() % ids.size()])) {
              table.End(call, CallEvent::kCancel, absl::CancelledError(""));
            }
          }
          break;
        case 5:
          wheel.Advance(now += random() % 5000);
          if (random() % 50 == 0) {
            table.EndAll(CallState::kSent, CallEvent::kPeerDown, absl::UnavailableError(""),
                         [](const Call&) { return true; });
          }
          break;
      }
    }
    const auto all = [](const Call&) { return true; };
    table.EndAll(CallState::kSent, CallEvent::kCancel, absl::CancelledError(""), all);
    table.EndAll(CallState::kWaiting, CallEvent::kCancel, absl::CancelledError(""), all);
    ASSERT_EQ(table.active(), 0u);
    table.SettleDeadlines();
    ASSERT_EQ(wheel.size(), 0u) << "timers left behind";
    for (const auto& counter : counters) ASSERT_EQ(counter->ended, 1);
  }
}

}  // namespace call_table_test
}  // namespace sluice::call
