// SPDX-License-Identifier: Apache-2.0
//
// A tenant's DCTs after one of its peers was ended for what it sent: the others switch while they send all the while, and
// the offender's keys lead nowhere.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/manual_clock.h"
#include "tests/transport/endpoint/lane_world.h"
#include "tests/transport/endpoint/offender.h"
#include "transport/peer/targets.h"

namespace sluice::endpoint {
namespace renewal_test {

using testing_support::ManualClock;

constexpr int64_t kMs = 1'000'000;

class RenewalTest : public OffenderTest {
 protected:
  static constexpr size_t kClients = 2;

  // The server and two correct clients, which send each other messages in each pass from now on.
  void Start(const Options& options = WithWindow(8)) {
    StartServer(options, &server_program_, &time_);
    server_program_.endpoint = server_->endpoint.get();
    for (size_t i = 0; i < kClients; ++i) {
      Options own = WithSecret();
      // A lane, and messages by completions.
      if (i == 1) own.lane_memory_bytes = 0;
      clients_[i].emplace(own, &softdc::Verbs(), nullptr, &programs_[i]);
      programs_[i].endpoint = clients_[i]->endpoint.get();
      Join(i);
    }
  }
  void TearDown() override {
    for (auto& client : clients_) client.reset();
    OffenderTest::TearDown();
  }
  void Join(size_t i) {
    ASSERT_TRUE(
        clients_[i]
            ->endpoint->Connect("127.0.0.1", port_, clients_[i]->clock.NowNs() + kPatienceNs)
            .ok());
    PassUntil([&] { return !programs_[i].ups.empty() || programs_[i].downs != 0; });
    ASSERT_EQ(programs_[i].downs, 0u);
  }
  void Pass() {
    for (size_t i = 0; i < kClients; ++i) {
      if (!clients_[i].has_value()) continue;
      for (const PeerId id : programs_[i].ups) programs_[i].Send(id, 64);
      clients_[i]->endpoint->Poll();
    }
    for (const PeerId id : server_program_.ups) {
      if (server_program_.Of(id).up && sends_) server_program_.Send(id, 64);
    }
    server_->endpoint->Poll();
  }
  void PassUntil(const std::function<bool()>& done) {
    while (!done()) Pass();
  }
  // So many more, each way.
  void Exchange(uint64_t messages) {
    const uint64_t received = server_program_.received + messages;
    std::array<uint64_t, kClients> wanted;
    for (size_t i = 0; i < kClients; ++i) wanted[i] = programs_[i].received + messages;
    sends_ = true;
    PassUntil([&] {
      for (size_t i = 0; i < kClients; ++i) {
        if (programs_[i].received < wanted[i]) return false;
      }
      return server_program_.received >= received;
    });
    sends_ = false;
  }
  Counters Counts() { return server_->endpoint->Counts(); }
  // Whether what it sends to the DCT it knows is taken there.
  bool Reaches(RawPeer& raw) {
    raw.failed = false;
    raw.Send(raw.Prefix(peer::Kind::kProbe));
    while (raw.under_way != 0) {
      raw.Step();
      Pass();
    }
    for (int i = 0; i < 64; ++i) raw.Step();
    return !raw.failed;
  }
  void ExpectUnharmed() {
    EXPECT_EQ(server_program_.gaps, 0u);
    for (size_t i = 0; i < kClients; ++i) {
      EXPECT_EQ(programs_[i].gaps + programs_[i].torn + programs_[i].downs, 0u) << i;
      EXPECT_EQ(clients_[i]->endpoint->Counts().requests_failed, 0u) << i;
    }
  }

  ManualClock time_;
  Program server_program_;
  std::array<Program, kClients> programs_;
  std::array<std::optional<Node>, kClients> clients_;
  bool sends_ = false;
};

TEST_F(RenewalTest, OthersSwitchWhileTheySendAndTheOffendersKeyLeadsNowhere) {
  Start();
  RawPeer raw(Shared());
  ConnectOffender(raw);
  const uint32_t before = terms_.data_dctn;
  Exchange(200);
  SendData(raw, 0, 20);
  PassUntil([&] { return Counts().targets_renewed == 1; });
  EXPECT_EQ(server_program_.downs, 1u);
  EXPECT_EQ(Counts().over_credit, 1u);
  Exchange(200);
  EXPECT_TRUE(Reaches(raw)) << "until somebody looks whether all have switched";
  time_.Advance(300 * kMs);
  PassUntil([&] { return !Reaches(raw); });
  Exchange(200);
  ExpectUnharmed();
  EXPECT_EQ(server_program_.downs, 1u);

  // Who comes now learns the new ones.
  RawPeer late(Shared());
  ConnectOffender(late);
  EXPECT_NE(terms_.data_dctn, before);
  EXPECT_TRUE(Reaches(late));
}

TEST_F(RenewalTest, TheNextOneWaitsASecond) {
  Start();
  for (uint64_t offender = 1; offender <= 3; ++offender) {
    RawPeer raw(Shared());
    ConnectOffender(raw);
    SendData(raw, 0, 20);
    // Another thread makes the DCTs.
    PassUntil([&] { return Counts().over_credit == offender && Counts().targets_renewed != 0; });
    Exchange(20);
    EXPECT_EQ(Counts().targets_renewed, 1u);
  }
  for (int i = 0; i < 2; ++i) {
    time_.Advance(300 * kMs);
    Exchange(50);
  }
  EXPECT_EQ(Counts().targets_renewed, 1u);
  PassUntil([&] {
    time_.Advance(kMs);
    return Counts().targets_renewed == 2;
  });
  for (int i = 0; i < 4; ++i) {
    time_.Advance(300 * kMs);
    Exchange(50);
  }
  EXPECT_EQ(Counts().targets_renewed, 2u) << "once for both that came meanwhile";
  ExpectUnharmed();
}

TEST_F(RenewalTest, HandshakesThatAreUnderWayEndWithTheTargetsTheyBeganWithAndSwitchThen) {
  Start();
  RawPeer half_open(Shared());
  Welcome(half_open);
  RawPeer raw(Shared());
  ConnectOffender(raw);
  const peer::Terms before = terms_;
  SendData(raw, 0, 20);
  PassUntil([&] { return Counts().targets_renewed == 1; });
  Prove(half_open);
  EXPECT_EQ(terms_.data_dctn, before.data_dctn);
  EXPECT_EQ(terms_.control_key, before.control_key);
  Drive(*server_, half_open, [&] { return half_open.received.size() >= 2; });
  const peer::Bytes told = half_open.received[1];
  const auto targets = peer::DecodeTargets(told.subspan(peer::kPrefixBytes));
  ASSERT_TRUE(targets.has_value());
  EXPECT_NE(targets->data_dctn, before.data_dctn);
  EXPECT_NE(targets->data_key, before.data_key);
  EXPECT_NE(targets->control_key, before.control_key);
}

// Its proof goes to one of the old ones, and its own deadline bounds it.
TEST_F(RenewalTest, HandshakeThatTakesLongerThanTheLooksKeepsTheOldOnesUntilItHasEnded) {
  Start();
  RawPeer half_open(Shared());
  Welcome(half_open);
  RawPeer raw(Shared());
  ConnectOffender(raw);
  SendData(raw, 0, 20);
  PassUntil([&] { return Counts().targets_renewed == 1; });
  for (int i = 0; i < 12; ++i) {
    time_.Advance(300 * kMs);
    Exchange(50);
  }
  ASSERT_TRUE(Reaches(half_open));
  Prove(half_open);
  time_.Advance(300 * kMs);
  Exchange(50);
  EXPECT_TRUE(Reaches(half_open)) << "it may not have read yet that there are others";
  PassUntil([&] {
    time_.Advance(300 * kMs);
    return !Reaches(raw);
  });
  ExpectUnharmed();
}

// The message that tells it fails. It is told again with whatever else is sent again, and not only at a later look: there is
// none here, since the clock stands still.
TEST_F(RenewalTest, PeerWhoseRequestsFailIsToldAgain) {
  Start();
  RawPeer moving(Shared());
  ConnectOffender(moving);
  RawPeer raw(Shared());
  ConnectOffender(raw);
  auto target = moving.control->MakeTarget(*moving.device, RawPeer::kControlKey);
  ASSERT_TRUE(target.ok()) << target.status();
  { const verbs::Qp gone = moving.control->Replace(*std::move(target)); }
  SendData(raw, 0, 20);
  PassUntil([&] { return Counts().targets_renewed == 1; });
  moving.received.clear();
  const auto where = peer::EncodeTargets({.data_dctn = moving.control->dctn(),
                                          .control_dctn = moving.control->dctn(),
                                          .data_key = RawPeer::kControlKey,
                                          .control_key = RawPeer::kControlKey});
  std::vector<std::byte> says = moving.Prefix(peer::Kind::kTargets);
  says.insert(says.end(), where.begin(), where.end());
  moving.Send(says);
  while (moving.under_way != 0) moving.Step();
  PassUntil([&] {
    moving.Step();
    return Counts().resends != 0 && !moving.received.empty();
  });
  for (int i = 0; i < 64; ++i) moving.Step();
  const bool told = std::any_of(moving.received.begin(), moving.received.end(), [](const auto& it) {
    peer::Prefix prefix;
    return peer::LoadPrefix(it.data(), static_cast<uint32_t>(it.size()), &prefix) &&
           prefix.kind == peer::Kind::kTargets;
  });
  EXPECT_TRUE(told) << moving.received.size() << " messages";
  EXPECT_EQ(server_program_.downs, 1u) << "the offender alone";
}

// It would keep the old ones for as long as it likes.
TEST_F(RenewalTest, APeerThatNeverAcknowledgesDoesNotKeepTheOldOnes) {
  Start();
  RawPeer mute(Shared());
  ConnectOffender(mute);
  RawPeer raw(Shared());
  ConnectOffender(raw);
  SendData(raw, 0, 20);
  PassUntil([&] { return Counts().targets_renewed == 1; });
  for (int i = 0; i < 7; ++i) {
    time_.Advance(300 * kMs);
    Exchange(200);
    EXPECT_TRUE(Reaches(raw)) << i;
  }
  time_.Advance(300 * kMs);
  PassUntil([&] { return !Reaches(raw); });
  Exchange(200);
  ExpectUnharmed();
}

}  // namespace renewal_test
}  // namespace sluice::endpoint
