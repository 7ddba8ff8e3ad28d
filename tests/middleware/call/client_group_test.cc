// SPDX-License-Identifier: Apache-2.0
//
// Several client engines over one endpoint: who gets which event, whose timers are looked at, and what an end leaves.
#include "middleware/call/client_group.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace client_group_test {

class ClientGroupTest : public Cluster {
 protected:
  struct Member {
    std::unique_ptr<ClientEngine> engine;
    std::unique_ptr<GroupEndpoint> end;
  };

  void MakeGroup(int servers, int members) {
    for (int i = 0; i < servers; ++i) StartServer(i);
    group_ = std::make_unique<ClientGroup>(&clock_);
    shared_end_ = network_.Create(group_->handler(), &clock_, fake_options_);
    group_->Attach(shared_end_.get());
    for (int i = 0; i < members; ++i) AddMember({AddressOf(i % servers)});
    SettleGroup();
  }
  Member* AddMember(const std::vector<ServerAddress>& servers) {
    auto& member = members_.emplace_back(std::make_unique<Member>());
    member->engine = std::make_unique<ClientEngine>(options_, &clock_, &random_, &client_log_);
    member->end = std::make_unique<GroupEndpoint>(group_.get(), member->engine.get());
    member->engine->Attach(member->end.get());
    group_->Enter(member->end.get());
    member->engine->SetServers(servers);
    member->engine->Dial();
    return member.get();
  }
  void TearDown() override {
    for (auto& member : members_) End(member.get());
    Cluster::TearDown();
  }
  void End(Member* member) {
    if (member->engine == nullptr) return;
    group_->Enter(member->end.get());
    member->engine->Close();
    SettleGroup();
    EXPECT_TRUE(member->end->gone());
    group_->Leave(member->end.get());
    member->engine.reset();
    member->end.reset();
  }
  void SettleGroup() {
    for (int quiet = 0; quiet < 40;) {
      int done = group_->Poll();
      for (auto& node : nodes_) {
        if (node->engine != nullptr) done += node->engine->Poll();
      }
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  std::unique_ptr<Outcome> StartCall(Member* member, const Method& method,
                                     int64_t timeout_ns = kNoDeadlineNs) {
    auto outcome = std::make_unique<Outcome>();
    CallSpec spec;
    spec.method = &method;
    spec.request = &outcome->request;
    spec.reply = &outcome->reply;
    spec.timeout_ns = timeout_ns;
    spec.argument = outcome.get();
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Outcome*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    group_->Enter(member->end.get());
    EXPECT_TRUE(member->engine->Start(spec).ok());
    return outcome;
  }

  std::unique_ptr<ClientGroup> group_;
  std::unique_ptr<testing_support::FakeEndpoint> shared_end_;
  std::vector<std::unique_ptr<Member>> members_;
};

TEST_F(ClientGroupTest, CallThatWaitsForCreditGoesElsewhereWhenItsServerIsRemoved) {
  fake_options_.credits = 2;
  MakeGroup(2, 0);
  Member* const member = AddMember({AddressOf(0), AddressOf(1)});
  SettleGroup();
  nodes_[0]->end->set_withhold_credits(true);
  std::vector<std::unique_ptr<Outcome>> held;
  for (int i = 0; i < 2; ++i) held.push_back(StartCall(member, kHold));
  SettleGroup();
  ASSERT_EQ(nodes_[0]->held.size(), 2u);
  const auto waits = StartCall(member, kOnce);
  SettleGroup();
  EXPECT_EQ(waits->ended, 0);
  group_->Enter(member->end.get());
  member->engine->SetServers({AddressOf(1)});
  SettleGroup();
  EXPECT_EQ(waits->ended, 1);
  EXPECT_TRUE(waits->status.ok()) << waits->status;
  EXPECT_EQ(waits->reply.syndrome(), 1u);
  for (ServerCall* call : std::exchange(nodes_[0]->held, {})) call->Finish(absl::OkStatus());
  SettleGroup();
  for (const auto& outcome : held) EXPECT_TRUE(outcome->status.ok()) << outcome->status;
}

TEST_F(ClientGroupTest, EachEngineHearsOfItsOwnPeers) {
  MakeGroup(2, 4);
  std::vector<std::unique_ptr<Outcome>> outcomes;
  for (auto& member : members_) outcomes.push_back(StartCall(member.get(), kOnce));
  SettleGroup();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(outcomes[i]->ended, 1);
    EXPECT_TRUE(outcomes[i]->status.ok()) << outcomes[i]->status;
    EXPECT_EQ(outcomes[i]->reply.syndrome(), i % 2);
    EXPECT_EQ(members_[i]->engine->counters().connections, 1u);
    // Each engine's tables begin at the first index, however many peers the others have.
    EXPECT_EQ(members_[i]->engine->connections()[0]->peer.index, 0u);
  }
}

TEST_F(ClientGroupTest, DeadlineOfAnyEngineLimitsTheSleepOfAll) {
  MakeGroup(2, 2);
  EXPECT_LT(group_->SleepLimitNs(), 0) << "nobody waits for a time";
  const auto late = StartCall(members_[0].get(), kHold, 50 * kMs);
  const auto soon = StartCall(members_[1].get(), kHold, 20 * kMs);
  SettleGroup();
  EXPECT_GT(group_->SleepLimitNs(), 0);
  EXPECT_LE(group_->SleepLimitNs(), 20 * kMs);
  EXPECT_TRUE(group_->HasCalls());
  clock_.Advance(21 * kMs);
  EXPECT_EQ(group_->AfterSleep(), 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(soon->status)) << soon->status;
  EXPECT_EQ(late->ended, 0);
  clock_.Advance(30 * kMs);
  SettleGroup();
  EXPECT_EQ(late->ended, 1);
  EXPECT_FALSE(group_->HasCalls());
  EXPECT_LT(group_->SleepLimitNs(), 0);
}

TEST_F(ClientGroupTest, GroupSleepsWhenNoEngineHasWork) {
  MakeGroup(1, 3);
  EXPECT_TRUE(group_->PrepareToSleep());
  group_->Enter(members_[1]->end.get());
  members_[1]->engine->DialSoon();
  EXPECT_FALSE(group_->PrepareToSleep()) << "the next pass has something to do";
  SettleGroup();
  EXPECT_TRUE(group_->PrepareToSleep());
}

TEST_F(ClientGroupTest, CallOfAnEngineThatWasIdleTakesTheTimeOfNow) {
  MakeGroup(1, 2);
  clock_.Advance(1000 * kMs);
  const auto outcome = StartCall(members_[0].get(), kHold, 20 * kMs);
  SettleGroup();
  EXPECT_EQ(outcome->ended, 0) << "its deadline is not that of a second ago";
  clock_.Advance(21 * kMs);
  SettleGroup();
  EXPECT_TRUE(absl::IsDeadlineExceeded(outcome->status)) << outcome->status;
}

TEST_F(ClientGroupTest, EngineReconnectsByItself) {
  MakeGroup(2, 2);
  KillServer(0);
  SettleGroup();
  EXPECT_EQ(members_[0]->engine->counters().connections_lost, 1u);
  EXPECT_EQ(members_[1]->engine->counters().connections_lost, 0u);
  StartServer(0);
  clock_.Advance(200 * kMs);
  SettleGroup();
  EXPECT_EQ(members_[0]->engine->state(), ConnectionState::kUp);
  const auto outcome = StartCall(members_[0].get(), kOnce);
  SettleGroup();
  EXPECT_TRUE(outcome->status.ok()) << outcome->status;
}

TEST_F(ClientGroupTest, EndOfAnEngineGivesBackWhatItHad) {
  MakeGroup(2, 3);
  const auto cancelled = StartCall(members_[0].get(), kHold);
  const auto other = StartCall(members_[1].get(), kHold);
  bool told = false;
  members_[0]->end->WhenGone([&told] { told = true; });
  End(members_[0].get());
  EXPECT_TRUE(told);
  EXPECT_TRUE(absl::IsCancelled(cancelled->status)) << cancelled->status;
  EXPECT_EQ(other->ended, 0);
  for (auto& member : members_) End(member.get());
  EXPECT_TRUE(absl::IsCancelled(other->status)) << other->status;
  EXPECT_EQ(shared_end_->slots_out(), 0u);
  EXPECT_FALSE(group_->HasCalls());
  EXPECT_LT(group_->SleepLimitNs(), 0);
}

// A member is in the group's lists until it leaves, and in none of them afterwards, whatever is called at it.
TEST_F(ClientGroupTest, EngineThatLeftMayStillBeEntered) {
  MakeGroup(1, 2);
  Member* const left = members_[0].get();
  group_->Enter(left->end.get());
  left->engine->Close();
  SettleGroup();
  group_->Leave(left->end.get());
  SettleGroup();
  group_->Enter(left->end.get());
  EXPECT_FALSE(left->engine->Cancel(1));
  EXPECT_TRUE(group_->PrepareToSleep()) << "it is in no list";
  left->engine.reset();
  left->end.reset();
  SettleGroup();
  const auto outcome = StartCall(members_[1].get(), kOnce);
  SettleGroup();
  EXPECT_TRUE(outcome->status.ok());
}

TEST_F(ClientGroupTest, IndexesOfPeersAreUsedAgainWithOtherGenerations) {
  MakeGroup(2, 1);
  Member* const member = members_[0].get();
  const endpoint::PeerId first = member->engine->connections()[0]->peer;
  for (int round = 0; round < 5; ++round) {
    group_->Enter(member->end.get());
    member->engine->SetServers({AddressOf(1 - round % 2)});
    SettleGroup();
    const endpoint::PeerId peer = member->engine->connections()[0]->peer;
    EXPECT_LE(peer.index, 1u);
    EXPECT_FALSE(peer == first);
    EXPECT_FALSE(member->end->Report(first).ok()) << "an old number names nobody";
    const auto outcome = StartCall(member, kOnce);
    SettleGroup();
    EXPECT_TRUE(outcome->status.ok()) << outcome->status;
  }
}

}  // namespace client_group_test
}  // namespace sluice::call
