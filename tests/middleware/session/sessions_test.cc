// SPDX-License-Identifier: Apache-2.0
//
// Two ends over the fake network, whose requests fail when told to.
#include "middleware/session/sessions.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"
#include "transport/base/random.h"

namespace sluice::session {
namespace sessions_test {

using endpoint::PeerId;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::ManualClock;

struct End final : User {
  void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override { peer = id; }
  void OnPeerDown(PeerId, const absl::Status& status) override { down = status; }
  void OnMessage(PeerId, const frame::Header& header, std::span<const std::byte> bytes) override {
    EXPECT_EQ(header.payload_bytes, sizeof(uint64_t));
    uint64_t number;
    std::memcpy(&number, bytes.data(), sizeof(number));
    EXPECT_EQ(number, received) << "lost, repeated or out of order";
    ++received;
  }
  void OnWritable(PeerId) override {}
  void OnDelivered(PeerId, uint32_t sequence) override { delivered = sequence; }
  void OnProtocolError(PeerId id, std::string_view what, std::string_view) override {
    error = std::string(what);
    endpoint->Disconnect(id);
  }

  bool Send() {
    auto buffer = sessions.Reserve(peer, sizeof(uint64_t));
    if (!buffer.ok()) return false;
    std::memcpy(buffer->data, &sent, sizeof(sent));
    frame::Header header;
    header.method_id = 1;
    header.payload_bytes = sizeof(sent);
    EXPECT_EQ(sessions.Commit(peer, *buffer, header), static_cast<uint32_t>(sent));
    ++sent;
    return true;
  }

  Sessions sessions{this};
  std::unique_ptr<FakeEndpoint> endpoint;
  PeerId peer;
  absl::Status down;
  std::string error;
  uint64_t sent = 0;
  uint64_t received = 0;
  uint32_t delivered = 0;
};

class SessionsTest : public testing::Test {
 protected:
  SessionsTest() {
    for (End* end : {&a_, &b_}) {
      end->endpoint = network_.Create(&end->sessions, &clock_);
      end->sessions.Attach(end->endpoint.get());
    }
    EXPECT_TRUE(b_.endpoint->Listen("b", 1).ok());
    EXPECT_TRUE(a_.endpoint->Connect("b", 1, INT64_MAX).ok());
    Settle();
  }
  void Pass() {
    a_.endpoint->Poll();
    b_.endpoint->Poll();
  }
  void Settle() {
    for (int i = 0; i < 10; ++i) Pass();
  }

  ManualClock clock_;
  FakeNetwork network_;
  End a_;
  End b_;
};

TEST_F(SessionsTest, AcknowledgedMessagesFreeTheirSlots) {
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(a_.Send());
  EXPECT_EQ(a_.endpoint->slots_out(), 10u);
  Settle();
  EXPECT_EQ(b_.received, 10u);
  ASSERT_TRUE(b_.Send());  // says how far it is
  Settle();
  EXPECT_EQ(a_.delivered, 10u);
  EXPECT_EQ(a_.endpoint->slots_out(), 0u);
  EXPECT_EQ(a_.sessions.unacknowledged(a_.peer), 0u);
  EXPECT_EQ(b_.sessions.unacknowledged(b_.peer), 1u);
}

TEST_F(SessionsTest, FailedRequestsAreSentAgain) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a_.Send());
  a_.endpoint->FailRequests(a_.peer);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a_.Send());  // behind them
  Settle();
  EXPECT_EQ(b_.received, 10u);
  EXPECT_EQ(a_.sessions.counters().sent_again, 10u);
  EXPECT_EQ(b_.sessions.counters().duplicates, 0u);
}

TEST_F(SessionsTest, MessagesThatHadArrivedAreDropped) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a_.Send());
  Settle();
  a_.endpoint->FailRequests(a_.peer);  // executed, and nobody has said so
  Settle();
  EXPECT_EQ(b_.received, 5u);
  EXPECT_EQ(b_.sessions.counters().duplicates, 5u);
}

TEST_F(SessionsTest, PeerThatGoesDownLeavesNoSlots) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(a_.Send());
  b_.endpoint->Kill();
  Settle();
  EXPECT_FALSE(a_.down.ok());
  EXPECT_EQ(a_.endpoint->slots_out(), 0u);
  EXPECT_FALSE(a_.Send());
}

TEST_F(SessionsTest, GapIsAProtocolError) {
  a_.endpoint->set_drop(true);
  ASSERT_TRUE(a_.Send());
  a_.endpoint->Flush();
  a_.endpoint->set_drop(false);
  ASSERT_TRUE(a_.Send());
  Settle();
  EXPECT_EQ(b_.error, "message out of order");
  EXPECT_EQ(b_.received, 0u);
}

TEST_F(SessionsTest, MalformedMessageIsAProtocolError) {
  a_.endpoint->set_tamper([](std::vector<std::byte>& message) {
    message[0] = std::byte{0xff};
    return 1;
  });
  ASSERT_TRUE(a_.Send());
  Settle();
  EXPECT_EQ(b_.error, "malformed message");
}

// Both ways at once, failures at chance moments: all arrives, in order, once, and no slot is left.
TEST_F(SessionsTest, NothingIsLostOrRepeatedWhateverFails) {
  base::SeededRandom random(7);
  for (int step = 0; step < 20'000; ++step) {
    switch (random.Below(8)) {
      case 0:
        a_.endpoint->FailRequests(a_.peer);
        break;
      case 1:
        b_.endpoint->FailRequests(b_.peer);
        break;
      case 2:
      case 3:
        Pass();
        break;
      default:
        (random.Below(2) == 0 ? a_ : b_).Send();
    }
  }
  Settle();
  ASSERT_TRUE(a_.Send());
  ASSERT_TRUE(b_.Send());
  Settle();
  EXPECT_GT(a_.sent, 1000u);
  EXPECT_EQ(b_.received, a_.sent);
  EXPECT_EQ(a_.received, b_.sent);
  EXPECT_GT(a_.sessions.counters().sent_again, 100u);
  EXPECT_GT(b_.sessions.counters().duplicates, 100u);
  EXPECT_LE(a_.endpoint->slots_out(), 1u);
}

}  // namespace sessions_test
}  // namespace sluice::session
