// SPDX-License-Identifier: Apache-2.0
//
// Two Sessions over the fake network that send each other large messages; whose users write down what they see.
#ifndef SLUICE_TESTS_MIDDLEWARE_SESSION_LARGE_PAIR_H_
#define SLUICE_TESTS_MIDDLEWARE_SESSION_LARGE_PAIR_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "middleware/session/sessions.h"
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"

namespace sluice::session {

using endpoint::PeerId;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::ManualClock;

inline constexpr uint32_t kEagerBytes = 4096 - frame::kHeaderBytes;

struct End final : User {
  void OnPeerUp(PeerId id, const endpoint::PeerInfo& info) override {
    peer = id;
    largest = Sessions::LargestPayload(info);
  }
  void OnPeerDown(PeerId, const absl::Status& status) override { down = status; }
  void OnMessage(PeerId, const frame::Header& header, std::span<const std::byte> bytes) override {
    EXPECT_EQ(header.payload_bytes, bytes.size());
    EXPECT_EQ(header.flags & frame::kFlagLarge, 0);
    const char fill = bytes.empty() ? '-' : static_cast<char>(bytes.back());
    for (const std::byte byte : bytes) EXPECT_EQ(static_cast<char>(byte), fill);
    received += std::to_string(header.call_id + header.flow_id) + fill;
    received += bytes.size() > kEagerBytes ? "L " : " ";
    if (header.kind == frame::Kind::kCancel) received += "cancelled ";
  }
  void OnWritable(PeerId) override { ++writable; }
  void OnDelivered(PeerId, uint32_t sequence) override { delivered = sequence; }
  void OnProtocolError(PeerId id, std::string_view what, std::string_view why) override {
    error = std::string(what) + ": " + std::string(why);
    endpoint->Disconnect(id);
  }
  void OnLost(PeerId, const frame::Header& header, const absl::Status& why) override {
    lost += std::to_string(header.call_id) + std::string(why.message()) + " ";
    why_lost = why;
  }

  void Open(FakeNetwork& network, base::Clock* clock, const FakeNetwork::Options& options) {
    endpoint = network.Create(&sessions, clock, options);
    sessions.Attach(endpoint.get());
  }

  // A message of a call, or of a flow, with every byte `fill`.
  bool Send(uint32_t call, char fill, uint32_t bytes, frame::Kind kind = frame::Kind::kRequest) {
    auto buffer = sessions.Reserve(peer, bytes);
    if (!buffer.ok()) return false;
    std::memset(buffer->data, fill, bytes);
    frame::Header header;
    header.kind = kind;
    header.method_id = kind == frame::Kind::kRequest ? 1 : 0;
    (kind == frame::Kind::kFlowData ? header.flow_id : header.flow_window) = 0;
    if (kind == frame::Kind::kFlowData) {
      header.flow_id = call;
    } else {
      header.call_id = call;
    }
    header.payload_bytes = bytes;
    sessions.Commit(peer, *buffer, header);
    return true;
  }

  Sessions sessions{this};
  std::unique_ptr<FakeEndpoint> endpoint;
  PeerId peer;
  uint32_t largest = 0;
  absl::Status down;
  std::string error;
  std::string received;
  std::string lost;
  absl::Status why_lost;  // the last one
  int writable = 0;
  uint32_t delivered = 0;
};

class LargeMessagesTest : public testing::Test {
 protected:
  void Start(FakeNetwork::Options options = {.max_large_bytes = 1 << 20,
                                             .large_memory_bytes = 2 << 20}) {
    Start(options, options);
  }
  void Start(const FakeNetwork::Options& of_a, const FakeNetwork::Options& of_b) {
    a_.Open(network_, &clock_, of_a);
    b_.Open(network_, &clock_, of_b);
    EXPECT_TRUE(b_.endpoint->Listen("b", 1).ok());
    EXPECT_TRUE(a_.endpoint->Connect("b", 1, INT64_MAX).ok());
    Settle();
  }
  // A third one, which a_ connects to as well; a_.peer is it from then on.
  void StartThird(End* third) {
    third->Open(network_, &clock_, {.max_large_bytes = 1 << 20, .large_memory_bytes = 2 << 20});
    EXPECT_TRUE(third->endpoint->Listen("c", 1).ok());
    EXPECT_TRUE(a_.endpoint->Connect("c", 1, INT64_MAX).ok());
    for (int i = 0; i < 3; ++i) {
      a_.endpoint->Poll();
      third->endpoint->Poll();
    }
  }
  void Settle() {
    for (int i = 0; i < 12; ++i) {
      a_.endpoint->Poll();
      b_.endpoint->Poll();
    }
  }
  void ExpectNothingOut() {
    EXPECT_EQ(a_.endpoint->large_out() + b_.endpoint->large_out(), 0u);
    EXPECT_EQ(a_.sessions.counters().lent + b_.sessions.counters().lent, 0u);
  }

  ManualClock clock_;
  FakeNetwork network_;
  End a_;
  End b_;
};

}  // namespace sluice::session

#endif  // SLUICE_TESTS_MIDDLEWARE_SESSION_LARGE_PAIR_H_
