// SPDX-License-Identifier: Apache-2.0
//
// What a receiver takes of a peer that has, or had, a lane. The peer is made by hand, so that it can say things in any order.
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/raw_peer.h"
#include "transport/lane/words.h"

namespace sluice::endpoint {
namespace lanes_in_test {

// A peer made by hand that is up at the endpoint and may send data.
class Sender {
 public:
  Sender(Node& server, uint16_t port) : server_(server) {
    raw_.Connect(port, raw_.Hello());
    Drive(server, raw_, [&] { return raw_.welcomed && raw_.up; });
    raw_.Send(raw_.Proof());
    Drive(server, raw_, [&] { return !server.recorder.ups.empty() && !raw_.received.empty(); });
    const peer::Terms terms = raw_.TakeAnswer();
    control_ = {raw_.target.dctn[1], terms.control_key};
    data_ = {terms.data_dctn, terms.data_key};
    raw_.received.clear();
  }
  // Message `number` of this peer says its number.
  void Data(uint16_t number) {
    peer::Prefix prefix = {.peer_index = raw_.remote_index,
                           .token = raw_.remote_token,
                           .granted = 16,
                           .kind = peer::Kind::kData,
                           .flags = 0,
                           .number = number};
    std::vector<std::byte> bytes(peer::kPrefixBytes);
    peer::StorePrefix(bytes.data(), prefix);
    for (const char c : std::to_string(number)) bytes.push_back(static_cast<std::byte>(c));
    Post(data_, bytes);
  }
  // The grant of a lane, which the endpoint makes when it likes.
  lane::Grant AwaitGrant() {
    lane::Grant grant;
    Drive(server_, raw_, [&] {
      for (const auto& bytes : raw_.received) {
        peer::Prefix prefix;
        if (!peer::LoadPrefix(bytes.data(), bytes.size(), &prefix)) continue;
        if (prefix.kind != peer::Kind::kLaneAsk) continue;
        grant = lane::LoadAsk(peer::Bytes(bytes).subspan(peer::kPrefixBytes))->grant;
        return true;
      }
      return false;
    });
    return grant;
  }
  void SayLost(const lane::Grant& grant) {
    std::vector<std::byte> bytes = raw_.Prefix(peer::Kind::kLaneAnswer);
    bytes.resize(peer::kPrefixBytes + lane::kAnswerBytes);
    lane::Store(lane::Answer{.generation = grant.generation, .mode = lane::Mode::kLost},
                bytes.data() + peer::kPrefixBytes);
    Post(control_, bytes);
  }
  // Says `count` times that something is in the lane, and writes nothing.
  void Announce(const lane::Grant& grant, uint32_t count) {
    raw_.target.dctn[1] = data_.dctn;
    raw_.target.key[1] = data_.key;
    for (uint32_t i = 0; i < count; ++i) {
      if (raw_.under_way == static_cast<int>(RawPeer::kSlots)) Arrive();
      raw_.Announce({.address = grant.address,
                     .rkey = grant.rkey,
                     .immediate = grant.lane << (32 - lane::kLaneBits)});
    }
    Arrive();
    for (int pass = 0; pass < 80; ++pass) server_.endpoint->Poll();
  }

 private:
  struct Address {
    uint32_t dctn = 0;
    uint64_t key = 0;
  };
  // All is there before the endpoint looks.
  void Arrive() {
    while (raw_.under_way != 0) raw_.Step();
  }
  // Until the endpoint has it, and has looked at it.
  void Post(const Address& to, const std::vector<std::byte>& bytes) {
    raw_.target.dctn[1] = to.dctn;
    raw_.target.key[1] = to.key;
    raw_.Send(bytes);
    Drive(server_, raw_, [&] { return raw_.under_way == 0; });
    for (int pass = 0; pass < 80; ++pass) server_.endpoint->Poll();
  }

  Node& server_;
  RawPeer raw_;
  Address control_, data_;
};

// Its requests failed, and with them what it wrote into the lane; what it sent behind that was carried out, late. Both come
// again, in order.
TEST(LanesIn, MessageSentBehindALaneThatIsLostIsNotTheNext) {
  Options options;
  options.lane_after_messages = 4;
  options.lanes_without_order = true;
  Node server(options);
  Sender sender(server, *server.endpoint->Listen("127.0.0.1", 0));
  std::vector<std::string> wanted;
  for (uint16_t number = 0; number < 5; ++number) {
    sender.Data(number);
    wanted.push_back(std::to_string(number));
  }
  EXPECT_EQ(server.recorder.messages, wanted);
  const lane::Grant grant = sender.AwaitGrant();
  // 5 and 6 are written there, and never arrive.
  sender.SayLost(grant);
  ASSERT_EQ(server.endpoint->Counts().lanes_lost, 1u);
  sender.Data(7);
  EXPECT_EQ(server.recorder.messages, wanted);
  EXPECT_TRUE(server.recorder.downs.empty());
  for (uint16_t number = 5; number < 9; ++number) {
    sender.Data(number);
    wanted.push_back(std::to_string(number));
  }
  EXPECT_EQ(server.recorder.messages, wanted);
  EXPECT_TRUE(server.recorder.downs.empty());
}

// The completion does not say who has sent it: the peer whose lane is named may be innocent.
TEST(LanesIn, ImmediateDataThatNamesTheLaneOfAnotherCostsThatPeerNothing) {
  Options options;
  options.credits_per_peer = 4;
  options.lane_after_messages = 4;
  options.lanes_without_order = true;
  Node server(options);
  const uint16_t port = *server.endpoint->Listen("127.0.0.1", 0);
  Sender innocent(server, port);
  std::vector<std::string> wanted;
  for (uint16_t number = 0; number < 5; ++number) {
    innocent.Data(number);
    wanted.push_back(std::to_string(number));
  }
  const lane::Grant grant = innocent.AwaitGrant();
  Sender offender(server, port);
  for (int round = 0; round < 3; ++round) {
    offender.Announce(grant, 100);  // more than 8 windows
    EXPECT_TRUE(server.recorder.downs.empty());
  }
  EXPECT_EQ(server.endpoint->Counts().over_credit, 0u);
  innocent.SayLost(grant);
  for (uint16_t number = 5; number < 9; ++number) {
    innocent.Data(number);
    wanted.push_back(std::to_string(number));
  }
  EXPECT_EQ(server.recorder.messages, wanted);
}

}  // namespace lanes_in_test
}  // namespace sluice::endpoint
