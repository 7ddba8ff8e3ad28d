// SPDX-License-Identifier: Apache-2.0
//
// A client engine that asks its servers whether they serve, in virtual time.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/health.pb.h"
#include "tests/middleware/call/cluster.h"

namespace sluice::call {
namespace client_health_test {

using health::v1::HealthCheckRequest;
using health::v1::HealthCheckResponse;

constexpr Method kCheck("/sluice.health.v1.Health/Check");
constexpr int64_t kPeriodNs = 1000 * kMs;

class ClientHealthTest : public Cluster {
 protected:
  // What a server answers, and what it was asked.
  struct Doctor {
    HealthCheckResponse::ServingStatus says = HealthCheckResponse::SERVING;
    absl::Status status;
    bool silent = false;  // the server holds the question
    std::vector<std::string> asked;
  };

  ClientHealthTest() {
    options_.balancing = Balancing::kRoundRobin;
    options_.health_period_ns = kPeriodNs;
    options_.health_service = "shop.v1.Shop";
  }
  void StartDoctor(int index) {
    StartServer(index);
    Doctor* const doctor = &doctors_[index];
    Node* const node = nodes_[index].get();
    MethodHandler handler;
    handler.method = &kCheck;
    handler.start = [doctor, node](ServerCall* call) {
      doctor->asked.push_back(static_cast<const HealthCheckRequest&>(call->request()).service());
      if (doctor->silent) return node->held.push_back(call);
      if (absl::IsUnavailable(doctor->status)) return call->Refuse(doctor->status);
      static_cast<HealthCheckResponse*>(call->reply())->set_status(doctor->says);
      call->Finish(doctor->status);
    };
    handler.request = std::make_unique<HealthCheckRequest>();
    handler.reply = std::make_unique<HealthCheckResponse>();
    ASSERT_TRUE(nodes_[index]->engine->Register(std::move(handler)).ok());
  }
  void ConnectDoctors(int servers) {
    for (int i = 0; i < servers; ++i) StartDoctor(i);
    ConnectClient(servers);
  }
  // Who answers how many of 12 calls.
  std::map<int, int> Shares() {
    std::map<int, int> shares;
    for (int i = 0; i < 12; ++i) ++shares[Call()];
    return shares;
  }
  // Until each has been asked again.
  void NextRound() { Advance(kPeriodNs * 5 / 4 + 1 * kMs); }

  std::map<int, Doctor> doctors_;
};

using Shared = std::map<int, int>;

TEST_F(ClientHealthTest, WhoDoesNotServeIsLeftOutUntilItDoes) {
  ConnectDoctors(3);
  EXPECT_EQ(doctors_[1].asked, std::vector<std::string>{"shop.v1.Shop"}) << "at once";
  EXPECT_EQ(Shares(), (Shared{{0, 4}, {1, 4}, {2, 4}}));
  doctors_[1].says = HealthCheckResponse::NOT_SERVING;
  NextRound();
  const Shared without = Shares();
  EXPECT_EQ(without.count(1), 0u);
  EXPECT_EQ(without.count(-1), 0u);
  EXPECT_EQ(client_log_.Lines(), "warning: server unhealthy (s1:1)\n");
  doctors_[1].says = HealthCheckResponse::SERVING;
  NextRound();
  EXPECT_EQ(Shares(), (Shared{{0, 4}, {1, 4}, {2, 4}}));
  EXPECT_TRUE(client_log_.Has("server healthy"));
}

TEST_F(ClientHealthTest, EachPolicyLeavesItOut) {
  for (const Balancing policy :
       {Balancing::kPickFirst, Balancing::kRoundRobin, Balancing::kLeastOutstanding}) {
    SCOPED_TRACE(static_cast<int>(policy));
    options_.balancing = policy;
    doctors_[0].says = HealthCheckResponse::NOT_SERVING;
    ConnectDoctors(2);
    EXPECT_EQ(Shares(), (Shared{{1, 12}}));
    client_->Close();
    client_.reset();
    KillServer(0);
    KillServer(1);
  }
}

// A server asks its idle client to leave (kFlagRest).
TEST_F(ClientHealthTest, TheOnlyServerThatServesKeepsItsConnection) {
  options_.balancing = Balancing::kPickFirst;
  doctors_[0].says = HealthCheckResponse::NOT_SERVING;
  ConnectDoctors(2);
  ASSERT_EQ(Shares(), (Shared{{1, 12}}));
  const auto say_rest = [this] {
    frame::Header header;
    header.kind = frame::Kind::kDrain;
    header.flags = frame::kFlagRest;
    client_->OnMessage(client_->connections()[1]->peer, header, {});
    Settle();
  };
  say_rest();
  EXPECT_EQ(client_->connections()[1]->state, ConnectionState::kUp);
  doctors_[0].says = HealthCheckResponse::SERVING;
  NextRound();
  say_rest();
  EXPECT_EQ(client_->connections()[1]->state, ConnectionState::kIdle) << "another serves";
  ASSERT_EQ(Call(), 0);
  doctors_[0].says = HealthCheckResponse::NOT_SERVING;
  NextRound();
  (void)Call();
  EXPECT_EQ(Shares(), (Shared{{1, 12}})) << "the first is up, and unhealthy";
}

TEST_F(ClientHealthTest, WhenNobodyServesAllGetCalls) {
  ConnectDoctors(2);
  doctors_[0].says = doctors_[1].says = HealthCheckResponse::NOT_SERVING;
  NextRound();
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}})) << "an answer does not make calls fail";
}

TEST_F(ClientHealthTest, TheOtherTakesOverWhenTheOnlyOneThatServesIsLost) {
  ConnectDoctors(2);
  doctors_[0].says = HealthCheckResponse::NOT_SERVING;
  NextRound();
  EXPECT_EQ(Shares(), (Shared{{1, 12}}));
  KillServer(1);
  Settle();
  EXPECT_EQ(Shares(), (Shared{{0, 12}}));
}

// It stands in the queue for the credit of the one that serves, which is lost.
TEST_F(ClientHealthTest, CallThatWaitsGoesToWhoIsLeft) {
  fake_options_.credits = 2;
  options_.retry.max_attempts = 1;
  ConnectDoctors(2);
  doctors_[0].says = HealthCheckResponse::NOT_SERVING;
  NextRound();
  nodes_[1]->end->set_withhold_credits(true);
  while (Start(&outcomes_.emplace_back(), kHold).ok() && outcomes_.size() < 8) Settle();
  Outcome& waits = outcomes_.emplace_back();
  ASSERT_TRUE(Start(&waits).ok());
  Settle();
  EXPECT_EQ(waits.ended, 0);
  KillServer(1);
  Settle();
  EXPECT_TRUE(waits.status.ok()) << waits.status;
  EXPECT_EQ(waits.reply.syndrome(), 0u);
}

TEST_F(ClientHealthTest, WhoCannotSayCountsAsServing) {
  StartServer(0);  // without a health service
  StartDoctor(1);
  ConnectClient(2);
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}}));
}

TEST_F(ClientHealthTest, WhoKnowsNothingOfTheServiceIsLeftOut) {
  doctors_[0].status = absl::NotFoundError("nothing was said of it");
  ConnectDoctors(2);
  EXPECT_EQ(Shares(), (Shared{{1, 12}}));
}

TEST_F(ClientHealthTest, WhoDoesNotAnswerIsLeftOut) {
  ConnectDoctors(2);
  doctors_[0].silent = true;
  NextRound();  // it is asked
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}})) << "there is still time";
  NextRound();  // it has not answered
  EXPECT_EQ(Shares(), (Shared{{1, 12}}));
}

TEST_F(ClientHealthTest, WhoIsTooBusyToSayIsWhatItWas) {
  ConnectDoctors(2);
  doctors_[0].status = absl::ResourceExhaustedError("later");
  NextRound();
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}}));
}

TEST_F(ClientHealthTest, NewServerGetsCallsOnceItHasAnswered) {
  ConnectDoctors(1);
  StartDoctor(1);
  doctors_[1].silent = true;
  client_->SetServers({AddressOf(0), AddressOf(1)});
  Settle();
  EXPECT_EQ(Shares(), (Shared{{0, 12}}));
  doctors_[1].silent = false;
  ASSERT_EQ(nodes_[1]->held.size(), 1u);
  static_cast<HealthCheckResponse*>(nodes_[1]->held[0]->reply())
      ->set_status(HealthCheckResponse::SERVING);
  FinishHeld(1);
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}}));
}

TEST_F(ClientHealthTest, AsksOncePerPeriodVariedByAQuarter) {
  ConnectDoctors(1);
  constexpr int kPeriods = 200;
  std::vector<size_t> asked;
  for (int i = 0; i < kPeriods * 100; ++i) {
    Advance(kPeriodNs / 100);
    asked.push_back(doctors_[0].asked.size());
  }
  EXPECT_GT(asked.back(), kPeriods * 9u / 10);
  EXPECT_LT(asked.back(), kPeriods * 11u / 10);
  // Gaps in hundredths of the period: none shorter than three quarters, none much longer than five.
  int gap = 0;
  int shortest = INT32_MAX;
  int longest = 0;
  for (size_t i = 1; i < asked.size(); ++i) {
    ++gap;
    if (asked[i] == asked[i - 1]) continue;
    if (asked[i] > 2) {
      shortest = std::min(shortest, gap);
      longest = std::max(longest, gap);
    }
    gap = 0;
  }
  EXPECT_GE(shortest, 74);
  EXPECT_LT(shortest, 90) << "they vary";
  EXPECT_GT(longest, 110);
  EXPECT_LE(longest, 127);
}

TEST_F(ClientHealthTest, NobodyIsAskedUnlessThatIsWanted) {
  options_.health_period_ns = 0;
  doctors_[0].says = HealthCheckResponse::NOT_SERVING;
  ConnectDoctors(2);
  NextRound();
  EXPECT_TRUE(doctors_[0].asked.empty());
  EXPECT_EQ(Shares(), (Shared{{0, 6}, {1, 6}}));
}

TEST_F(ClientHealthTest, QuestionIsNotPutToAnotherServer) {
  ConnectDoctors(2);
  doctors_[0].status = absl::UnavailableError("not now");
  for (int i = 0; i < 10; ++i) NextRound();
  EXPECT_EQ(client_->counters().retries, 0u);
  EXPECT_LT(doctors_[1].asked.size(), doctors_[0].asked.size() + 4);
}

TEST_F(ClientHealthTest, ChecksAddNothingToTheRetryBudget) {
  options_.retry.budget = 1;
  options_.retry.budget_per_thousand_ok = 1000;
  ConnectDoctors(1);
  const auto call_that_fails = [this] {
    nodes_[0]->answer = absl::UnavailableError("not now");
    Outcome& outcome = outcomes_.emplace_back();
    ASSERT_TRUE(Start(&outcome, kAnyTimes).ok());
    Settle();
    Advance(30 * kMs);
    ASSERT_EQ(outcome.ended, 1);
    nodes_[0]->answer = absl::OkStatus();
  };
  call_that_fails();
  EXPECT_EQ(client_->counters().retries, 1u) << "the only token";
  const size_t asked = doctors_[0].asked.size();
  for (int i = 0; i < 5; ++i) NextRound();
  ASSERT_GE(doctors_[0].asked.size(), asked + 5);
  call_that_fails();
  EXPECT_EQ(client_->counters().retries, 1u);
  EXPECT_EQ(Call(), 0);
  call_that_fails();
  EXPECT_EQ(client_->counters().retries, 2u) << "the success of a call adds a token";
}

TEST_F(ClientHealthTest, QuestionUnderWayOutlivesItsServerAndItsPlaceInTheList) {
  ConnectDoctors(3);
  for (auto& [index, doctor] : doctors_) doctor.silent = true;
  NextRound();
  for (const auto& node : nodes_) EXPECT_EQ(node->held.size(), 1u);
  client_->SetServers({AddressOf(1), AddressOf(2)});
  Settle();
  KillServer(1);
  Settle();
  NextRound();
  NextRound();
  EXPECT_EQ(Shares(), (Shared{{2, 12}}));
  EXPECT_EQ(client_->connections().size(), 2u);
  client_->Close();  // with the last one's under way
}

}  // namespace client_health_test
}  // namespace sluice::call
