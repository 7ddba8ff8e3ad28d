// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/cm/wire_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <random>

namespace sluice::softdc::cm {
namespace wire_message_test {

WireMessage Req() {
  WireMessage req = NewMessage(MessageType::kReq);
  req.source.family = AF_INET;
  req.destination.family = AF_INET6;
  return req;
}

bool Decodes(const WireMessage& message) {
  WireMessage decoded;
  return DecodeMessage(std::as_bytes(std::span(&message, 1)), &decoded);
}

TEST(DecodeMessageTest, GoodMessagesComeBackUnchanged) {
  WireMessage req = Req();
  req.qp_num = 0xffffff;
  req.private_data[55] = 9;
  WireMessage decoded;
  ASSERT_TRUE(DecodeMessage(std::as_bytes(std::span(&req, 1)), &decoded));
  EXPECT_EQ(std::memcmp(&req, &decoded, sizeof(req)), 0);
  for (int type = 2; type <= 8; ++type) EXPECT_TRUE(Decodes(NewMessage(MessageType(type)))) << type;
}

TEST(DecodeMessageTest, EachFieldOutOfRangeIsRefused) {
  ASSERT_TRUE(Decodes(Req()));
  const auto refused = [](auto change) {
    WireMessage message = Req();
    change(message);
    return !Decodes(message);
  };
  EXPECT_TRUE(refused([](WireMessage& m) { m.magic ^= 1; }));
  EXPECT_TRUE(refused([](WireMessage& m) { ++m.version; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.type = MessageType(0); }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.type = MessageType(11); }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.qp_num = 0x1000000; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.psn = 0x1000000; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.ece_vendor_id = 0x1000000; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.retry_count = 8; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.rnr_retry_count = 8; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.ack_timeout = 32; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.source.family = AF_UNIX; }));
  EXPECT_TRUE(refused([](WireMessage& m) { m.destination.family = 0; }));
}

TEST(DecodeMessageTest, EveryOtherLengthIsRefused) {
  const WireMessage req = Req();
  std::byte bytes[sizeof(req) + 8] = {};
  std::memcpy(bytes, &req, sizeof(req));
  for (size_t length = 0; length <= sizeof(bytes); ++length) {
    WireMessage decoded;
    EXPECT_EQ(DecodeMessage({bytes, length}, &decoded), length == sizeof(req)) << length;
  }
}

TEST(DecodeMessageTest, NoiseIsRefused) {
  std::mt19937 random(1);
  for (int i = 0; i < 10'000; ++i) {
    std::byte bytes[sizeof(WireMessage)];
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    WireMessage decoded;
    EXPECT_FALSE(DecodeMessage(bytes, &decoded));
  }
}

}  // namespace wire_message_test
}  // namespace sluice::softdc::cm
