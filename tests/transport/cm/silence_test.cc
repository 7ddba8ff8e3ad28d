// SPDX-License-Identifier: Apache-2.0
//
// Peers that do not answer, of whom the kernel says nothing for minutes, and numbers that come back
// while such a peer still knows them. In virtual time, against a program that does only what it is
// told.
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/cm/number_watch.h"
#include "tests/transport/cm/sim_peer.h"
#include "tests/transport/cm/sim_process.h"

namespace sluice::cm {
namespace silence_test {

using softdc::sim::Simulation;

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kMinuteNs = 60 * kSecondNs;
constexpr uint32_t kOwn = 0;    // the manager's node
constexpr uint32_t kOther = 1;  // the peer's

class SilenceTest : public ::testing::Test {
 protected:
  // The manager gets the watch's device, which hands out the lowest free number.
  void Build(const Options& options = {}, const softdc::Dials& dials = {}) {
    softdc::sim::Options network;
    network.dials = dials;
    simulation_ = Simulation::Create(network).value();
    watch_ = std::make_unique<NumberWatch>(*simulation_);
    options_ = options;
    Start(NumberWatch::Table());
    peer_ = std::make_unique<SimPeer>(*simulation_, kOther);
  }
  void Start(const verbs::VerbsApi& api) {
    process_ =
        std::make_unique<SimProcess>(*simulation_, kOwn, api, /*ece=*/true, options_, 5, user_);
    user_.manager = &process_->manager();
  }
  void TearDown() override {
    process_.reset();
    peer_.reset();
    watch_.reset();
  }
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns = 10 * kMinuteNs) {
    const int64_t end_ns = simulation_->NowNs() + limit_ns;
    while (!done() && simulation_->NowNs() < end_ns) {
      if (!simulation_->Step()) break;  // nothing is left to happen
      process_->Poll();
      peer_->Poll();
    }
    return done();
  }
  ConnectionId Connect(int64_t within_ns) {
    const Simulation::As as(*simulation_, kOwn);
    const auto id =
        process_->manager().Connect("10.0.0.2", kSimPort, simulation_->NowNs() + within_ns, {});
    EXPECT_TRUE(id.ok()) << id.status();
    return *id;
  }
  void Close(ConnectionId id) {
    const Simulation::As as(*simulation_, kOwn);
    process_->manager().Close(id);
  }
  ConnectionId ConnectUp() {
    const int before = user_.ups, established = peer_->established;
    const ConnectionId id = Connect(10 * kSecondNs);
    EXPECT_TRUE(RunUntil([&] { return user_.ups > before && peer_->established > established; }))
        << user_.why;
    return id;
  }
  bool AllIsFree() { return process_->manager().size() == 0 && process_->numbers().in_use() == 0; }
  Metrics metrics() { return process_->manager().metrics(); }

  SimUser user_;
  Options options_;
  std::unique_ptr<Simulation> simulation_;
  std::unique_ptr<NumberWatch> watch_;
  std::unique_ptr<SimProcess> process_;
  std::unique_ptr<SimPeer> peer_;
};

TEST_F(SilenceTest, ServerThatNeverAcceptsIsAskedAgainAndGivenUpAtTheDeadline) {
  Build();
  peer_->Listen();
  peer_->accepts = false;
  const int64_t start_ns = simulation_->NowNs();
  Connect(20 * kSecondNs);
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }));
  const int64_t took_ns = simulation_->NowNs() - start_ns;
  EXPECT_GE(took_ns, 20 * kSecondNs);
  EXPECT_LT(took_ns, 20 * kSecondNs + kSecondNs / 100);
  EXPECT_EQ(user_.why.code(), absl::StatusCode::kDeadlineExceeded) << user_.why;
  EXPECT_NE(user_.why.message().find("in attempt 3"), absl::string_view::npos) << user_.why;
  // 3, 6 and 12 seconds of patience; each try with a number of its own.
  EXPECT_EQ(metrics().tries, 3u);
  ASSERT_EQ(peer_->numbers.size(), 3u);
  EXPECT_NE(peer_->numbers[0], peer_->numbers[1]);
  EXPECT_NE(peer_->numbers[1], peer_->numbers[2]);
  EXPECT_EQ(metrics().quarantined, 3u);  // each may be known over there
  EXPECT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
}

TEST_F(SilenceTest, LostRequestIsMadeUpForBeforeTheKernelRepeatsIt) {
  Build();
  peer_->Listen();
  simulation_->cm_faults().loss_ppm = 1'000'000;
  const int64_t start_ns = simulation_->NowNs();
  Connect(20 * kSecondNs);
  simulation_->After(kSecondNs, [&] { simulation_->cm_faults().loss_ppm = 0; });
  ASSERT_TRUE(RunUntil([&] { return user_.ups == 1; }));
  EXPECT_LT(simulation_->NowNs() - start_ns, 4 * kSecondNs);
  EXPECT_EQ(metrics().tries, 2u);
}

TEST_F(SilenceTest, HostThatIsNotThereEndsAtTheDeadline) {
  Build();
  simulation_->Kill(kOther);
  const int64_t start_ns = simulation_->NowNs();
  Connect(5 * kSecondNs);
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }));
  EXPECT_EQ(user_.why.code(), absl::StatusCode::kDeadlineExceeded) << user_.why;
  EXPECT_LT(simulation_->NowNs() - start_ns, 5 * kSecondNs + kSecondNs / 100);
  EXPECT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
}

TEST_F(SilenceTest, ProgramThatDoesNotListenIsFinalAtOnce) {
  Build();
  const int64_t start_ns = simulation_->NowNs();
  Connect(20 * kSecondNs);
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }));
  EXPECT_EQ(user_.why.code(), absl::StatusCode::kUnavailable) << user_.why;
  EXPECT_LT(simulation_->NowNs() - start_ns, kSecondNs / 100);
  EXPECT_EQ(metrics().retries, 0u);
}

// No record left, or it died over the request: another time it may be there.
TEST_F(SilenceTest, RefusalWithoutAWordIsTriedAgain) {
  Build();
  peer_->Listen();
  simulation_->cm_faults() = {.reject_ppm = 1'000'000, .reject_reason = 28};
  Connect(20 * kSecondNs);
  simulation_->After(kSecondNs, [&] { simulation_->cm_faults() = {}; });
  ASSERT_TRUE(RunUntil([&] { return user_.ups == 1; })) << user_.why;
  EXPECT_GT(metrics().retries, 2u);
  EXPECT_LT(metrics().retries, 12u);  // with a pause that grows
}

TEST_F(SilenceTest, ClientThatNeverEstablishesIsReaped) {
  Build();
  {
    const Simulation::As as(*simulation_, kOwn);
    ASSERT_TRUE(process_->manager().Listen("0.0.0.0", kSimPort).ok());
  }
  peer_->Connect(kOwn, 0x801);
  ASSERT_TRUE(RunUntil([&] { return peer_->responses == 1; }));
  const int64_t start_ns = simulation_->NowNs();
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }));
  EXPECT_LT(simulation_->NowNs() - start_ns, 9 * kSecondNs);
  EXPECT_EQ(user_.why.code(), absl::StatusCode::kDeadlineExceeded) << user_.why;
  EXPECT_EQ(metrics().half_open_reaped, 1u);
  EXPECT_EQ(user_.ups, 0);
  EXPECT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
}

// Our own program, too slow to answer a request.
TEST_F(SilenceTest, RequestThatNobodyAnswersHereIsReaped) {
  Build();
  user_.accepts = false;
  {
    const Simulation::As as(*simulation_, kOwn);
    ASSERT_TRUE(process_->manager().Listen("0.0.0.0", kSimPort).ok());
  }
  peer_->Connect(kOwn, 0x801);
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }, 9 * kSecondNs));
  EXPECT_EQ(user_.requests, 1);
  EXPECT_EQ(metrics().half_open_reaped, 0u);  // it had not been accepted
  EXPECT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
}

TEST_F(SilenceTest, PeerThatNeverAnswersOurGoodbyeIsForgotten) {
  Build();
  peer_->Listen();
  peer_->answers_disconnects = false;
  const ConnectionId id = ConnectUp();
  Close(id);
  EXPECT_EQ(metrics().quarantined, 1u);
  ASSERT_TRUE(RunUntil([&] { return process_->manager().size() == 0; }, 21 * kSecondNs));
  EXPECT_EQ(peer_->disconnected, 1);
  EXPECT_EQ(metrics().unanswered_closes, 1u);
  EXPECT_EQ(metrics().quarantined, 1u);  // the number alone
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }, 31 * kSecondNs));
  EXPECT_EQ(user_.downs, 0);  // it closed, so it is not told
}

TEST_F(SilenceTest, PeerThatSaysGoodbyeAndNothingMoreIsAnsweredAndForgotten) {
  Build();
  peer_->Listen();
  ConnectUp();
  const int64_t start_ns = simulation_->NowNs();
  peer_->Disconnect(peer_->requests[0]);
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 1; }, kSecondNs));
  EXPECT_EQ(user_.why.code(), absl::StatusCode::kUnavailable) << user_.why;
  ASSERT_TRUE(RunUntil([&] { return process_->manager().size() == 0; }, 5 * kSecondNs));
  EXPECT_EQ(metrics().quarantined, 1u);
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
  EXPECT_GE(simulation_->NowNs() - start_ns, options_.number_hold_ns);
}

// Each has said goodbye and awaits the other's answer (fact 106): both must give it.
TEST_F(SilenceTest, GoodbyesThatCrossAreBothAnswered) {
  Build();
  peer_->Listen();
  const ConnectionId id = ConnectUp();
  peer_->Disconnect(peer_->requests[0]);
  peer_->answers_disconnects = false;  // it has said all it will
  Close(id);
  ASSERT_TRUE(RunUntil([&] { return process_->manager().size() == 0; }, 5 * kSecondNs));
  EXPECT_EQ(peer_->disconnected, 1);
  EXPECT_EQ(metrics().unanswered_closes, 0u);
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }, kMinuteNs));
}

TEST_F(SilenceTest, HostThatDiedSilentlyIsForgottenOnceItIsClosed) {
  Build();
  peer_->Listen();
  const ConnectionId id = ConnectUp();
  simulation_->CutLink(kOwn, kOther);
  simulation_->Kill(kOther);
  EXPECT_FALSE(RunUntil([&] { return user_.downs != 0; }, 2 * kMinuteNs));  // nobody tells
  Close(id);
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }, 52 * kSecondNs));
}

TEST_F(SilenceTest, AttemptsToOnePeerHaveARate) {
  Build({.pacing = {.attempts_per_second = 10, .burst = 5}});
  const int64_t start_ns = simulation_->NowNs();
  for (int i = 0; i < 25; ++i) Connect(30 * kSecondNs);  // each is refused at once
  ASSERT_TRUE(RunUntil([&] { return user_.downs == 25; }));
  EXPECT_GE(simulation_->NowNs() - start_ns, 2 * kSecondNs - kSecondNs / 100);
  EXPECT_EQ(metrics().throttled, 20u);
}

// --- Numbers that come back ---

TEST_F(SilenceTest, WithoutQuarantineAnUnansweredGoodbyeCostsOneStaleRejectAndOneRetry) {
  Build({.close_timeout_ns = 0, .number_hold_ns = 0});
  peer_->Listen();
  peer_->answers_disconnects = false;
  Close(ConnectUp());
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }, kSecondNs));
  const int64_t start_ns = simulation_->NowNs();
  ConnectUp();
  EXPECT_EQ(watch_->stale(), 1u);
  EXPECT_EQ(metrics().stale_rejects, 1u);
  EXPECT_EQ(metrics().retries, 1u);
  EXPECT_LT(simulation_->NowNs() - start_ns, kSecondNs / 100);  // at once, not after a pause
  ASSERT_EQ(peer_->numbers.size(), 2u);  // the stale one never reached the program
  EXPECT_NE(peer_->numbers[0], peer_->numbers[1]);
  EXPECT_FALSE(watch_->violations().empty());  // which the watch has seen
}

TEST_F(SilenceTest, WithQuarantineAnUnansweredGoodbyeCostsNothing) {
  Build();
  peer_->Listen();
  peer_->answers_disconnects = false;
  Close(ConnectUp());
  ConnectUp();
  ASSERT_TRUE(RunUntil([&] { return process_->manager().size() == 1; }, kMinuteNs));
  ConnectUp();
  EXPECT_EQ(watch_->stale(), 0u);
  EXPECT_EQ(metrics().stale_rejects, 0u);
  EXPECT_EQ(metrics().retries, 0u);
  EXPECT_TRUE(watch_->violations().empty());
}

// Firmware hands out a killed process's numbers again while its peer has not answered yet: no
// quarantine of ours can help, and it costs a reject.
TEST_F(SilenceTest, NumbersOfAKilledProcessCostOneStaleRejectWhereTheyAreReissued) {
  for (const bool reissue : {true, false}) {
    softdc::Dials dials;
    dials.features.reissue_dead_numbers = reissue;
    Build({}, dials);
    user_ = {};
    process_.reset();
    Start(Simulation::Verbs());  // the device's own numbers
    peer_->Listen();
    peer_->answers_disconnects = false;
    ConnectUp();
    simulation_->Kill(kOwn);
    process_.reset();
    simulation_->Revive(kOwn);
    Start(Simulation::Verbs());
    ConnectUp();
    EXPECT_EQ(metrics().stale_rejects, reissue ? 1u : 0u);
    EXPECT_EQ(metrics().retries, reissue ? 1u : 0u);
    TearDown();
  }
}

// A server's number that the client's host knows already: only the server hears of it, and the
// request comes again (fact 112).
TEST_F(SilenceTest, StaleNumberOfTheServerIsCountedThereAndTheClientGetsThrough) {
  Build({.number_hold_ns = 10 * kSecondNs});
  {
    const Simulation::As as(*simulation_, kOwn);
    ASSERT_TRUE(process_->manager().Listen("0.0.0.0", kSimPort).ok());
  }
  peer_->Connect(kOwn, 0x801);
  ASSERT_TRUE(RunUntil([&] { return peer_->responses == 1; }));
  // Reaped unheard, and its number comes free while the client holds on to its end for ever.
  simulation_->CutLink(kOwn, kOther);
  ASSERT_TRUE(RunUntil([&] { return AllIsFree(); }));
  simulation_->HealLink(kOwn, kOther);
  peer_->Connect(kOwn, 0x802);
  ASSERT_TRUE(RunUntil([&] { return peer_->responses == 2; }));
  EXPECT_EQ(metrics().stale_rejects, 1u);
  EXPECT_EQ(watch_->stale(), 1u);
  EXPECT_NE(user_.why.message().find("stale"), absl::string_view::npos) << user_.why;
}

}  // namespace silence_test
}  // namespace sluice::cm
