// SPDX-License-Identifier: Apache-2.0
#include "transport/lane/words.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::lane {
namespace words_test {

const Ask kAsk{.turn = 7,
               .mode = Mode::kAnnounced,
               .grant = {.generation = 0x01020304,
                         .rkey = 0x0a0b0c0d,
                         .address = 0x1122334455667780,
                         .slots = 66,
                         .slot_bytes = 256,
                         .secret = 0xdeadbeef,
                         .lane = 0xfff,
                         .layout = Layout::kBlocks}};

std::vector<std::byte> Bytes(const Ask& ask) {
  std::vector<std::byte> bytes(kAskBytes);
  Store(ask, bytes.data());
  return bytes;
}

TEST(LoadAsk, RoundTrip) {
  const auto ask = LoadAsk(Bytes(kAsk));
  ASSERT_TRUE(ask.has_value());
  EXPECT_EQ(ask->turn, 7u);
  EXPECT_EQ(ask->mode, Mode::kAnnounced);
  EXPECT_EQ(ask->grant.generation, 0x01020304u);
  EXPECT_EQ(ask->grant.rkey, 0x0a0b0c0du);
  EXPECT_EQ(ask->grant.address, 0x1122334455667780u);
  EXPECT_EQ(ask->grant.slots, 66u);
  EXPECT_EQ(ask->grant.slot_bytes, 256u);
  EXPECT_EQ(ask->grant.secret, 0xdeadbeefu);
  EXPECT_EQ(ask->grant.lane, 0xfffu);
  EXPECT_EQ(ask->grant.layout, Layout::kBlocks);
}

TEST(LoadAsk, WhatNoReceiverSaysIsRefused) {
  std::vector<Ask> bad(9, kAsk);
  bad[0].mode = Mode::kLost;
  bad[1].mode = static_cast<Mode>(4);
  bad[2].grant.layout = static_cast<Layout>(0);
  bad[3].grant.generation = 0;
  bad[4].grant.slots = kMinSlots - 1;
  bad[5].grant.slots = kMaxSlots + 1;
  bad[6].grant.slot_bytes = 200;
  bad[7].grant.lane = kMaxLanes;
  bad[8].grant.address = 0x1000 + 64;
  for (size_t i = 0; i < bad.size(); ++i) EXPECT_FALSE(LoadAsk(Bytes(bad[i])).has_value()) << i;
  auto bytes = Bytes(kAsk);
  bytes[30] = std::byte{1};
  EXPECT_FALSE(LoadAsk(bytes).has_value()) << "a reserved field";
  bytes = Bytes(kAsk);
  bytes.pop_back();
  EXPECT_FALSE(LoadAsk(bytes).has_value());
  bytes.resize(kAskBytes + 1);
  EXPECT_FALSE(LoadAsk(bytes).has_value());
}

TEST(LoadAnswer, RoundTripAndWhatNoSenderSays) {
  std::vector<std::byte> bytes(kAnswerBytes);
  Store(Answer{.generation = 5, .turn = 6, .mode = Mode::kClosed, .written = 0xfffffff0},
        bytes.data());
  const auto answer = LoadAnswer(bytes);
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->generation, 5u);
  EXPECT_EQ(answer->turn, 6u);
  EXPECT_EQ(answer->mode, Mode::kClosed);
  EXPECT_EQ(answer->written, 0xfffffff0u);
  for (const size_t at : {0, 8, 9, 10, 11}) {
    auto changed = bytes;
    changed[at] = at == 0 ? std::byte{0} : std::byte{4};
    EXPECT_FALSE(LoadAnswer(changed).has_value()) << at;
  }
  bytes.push_back({});
  EXPECT_FALSE(LoadAnswer(bytes).has_value());
}

}  // namespace words_test
}  // namespace sluice::lane
