// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/handshake.h"

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/error.h"
#include "transport/base/random.h"

namespace sluice::peer {
namespace {

Hello SomeHello() {
  return {.epoch = 0x1122334455667788,
          .data_dctn = 0x000a0b,
          .control_dctn = 0xffffff,
          .data_key = 0xdeadbeefcafef00d,
          .control_key = 1,
          .max_message_bytes = 16384,
          .peer_index = 7,
          .token = 0x80000001,
          .credits = 64};
}

TEST(Encode, BytesStandWhereTheHeaderSays) {
  const auto bytes = Encode(SomeHello(), HandshakeKind::kHello);
  EXPECT_EQ(std::memcmp(bytes.data(), "SLCE", 4), 0);
  EXPECT_EQ(static_cast<int>(bytes[4]), kProtocolVersion);
  EXPECT_EQ(static_cast<int>(bytes[5]), 1);
  EXPECT_EQ(static_cast<int>(bytes[8]), 0x88);
  EXPECT_EQ(static_cast<int>(bytes[16]), 0x0b);
  EXPECT_EQ(static_cast<int>(bytes[44]), 7);
  EXPECT_EQ(static_cast<int>(bytes[52]), 64);
}

TEST(Decode, RoundTripAlsoWithZeroPadding) {
  for (const HandshakeKind kind : {HandshakeKind::kHello, HandshakeKind::kWelcome}) {
    const auto bytes = Encode(SomeHello(), kind);
    std::vector<std::byte> padded(bytes.begin(), bytes.end());
    padded.resize(196);
    for (const std::span<const std::byte> in :
         {std::span<const std::byte>(bytes), std::span<const std::byte>(padded)}) {
      const auto hello = Decode(in, kind);
      ASSERT_TRUE(hello.ok()) << hello.status();
      EXPECT_EQ(*hello, SomeHello());
    }
  }
}

TEST(Decode, EveryTruncationIsRefused) {
  const auto bytes = Encode(SomeHello(), HandshakeKind::kHello);
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto hello = Decode({bytes.data(), length}, HandshakeKind::kHello);
    EXPECT_EQ(hello.status().code(), absl::StatusCode::kInvalidArgument) << length;
  }
}

TEST(Decode, AnotherVersionNamesBoth) {
  auto bytes = Encode(SomeHello(), HandshakeKind::kHello);
  bytes[4] = std::byte{9};
  const auto hello = Decode(bytes, HandshakeKind::kHello);
  EXPECT_EQ(hello.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(hello.status().message().find("version 1, the other side version 9"),
            absl::string_view::npos)
      << hello.status();
}

TEST(Decode, WrongKindAndAbsurdFieldsAreRefused) {
  EXPECT_FALSE(Decode(Encode(SomeHello(), HandshakeKind::kHello), HandshakeKind::kWelcome).ok());
  const auto refused = [](auto change) {
    Hello hello = SomeHello();
    change(hello);
    return !Decode(Encode(hello, HandshakeKind::kHello), HandshakeKind::kHello).ok();
  };
  EXPECT_TRUE(refused([](Hello& h) { h.data_dctn = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.data_dctn = 1u << 24; }));
  EXPECT_TRUE(refused([](Hello& h) { h.control_dctn = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.token = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.credits = 0; }));
  EXPECT_TRUE(refused([](Hello& h) { h.credits = 0xffffffff; }));
  EXPECT_TRUE(refused([](Hello& h) { h.max_message_bytes = 0; }));
}

// Random bytes, and valid messages with random changes: refused or decoded within the ranges, never
// worse.
TEST(Decode, SurvivesGarbage) {
  base::SeededRandom random(20261120);
  int decoded = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<std::byte> bytes;
    if (i % 2 == 0) {
      const auto valid = Encode(SomeHello(), HandshakeKind::kHello);
      bytes.assign(valid.begin(), valid.end());
      for (uint64_t changes = 1 + random.Below(3); changes > 0; --changes) {
        bytes[random.Below(bytes.size())] = static_cast<std::byte>(random.Next64());
      }
    } else {
      bytes.resize(random.Below(200));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.Next64());
    }
    const auto hello = Decode(bytes, HandshakeKind::kHello);
    if (hello.ok()) {
      ++decoded;
      ASSERT_NE(hello->token, 0u);
      ASSERT_LT(hello->data_dctn, 1u << 24);
      ASSERT_GT(hello->credits, 0u);
    }
    const absl::Status refusal = DecodeRefusal(bytes, "peer", absl::UnavailableError("fallback"));
    ASSERT_FALSE(refusal.ok());
  }
  EXPECT_GT(decoded, 1'000);  // changed keys and epochs are as good as any
}

TEST(Refusal, RoundTripGivesCodeAndText) {
  const auto bytes = EncodeRefusal(RefusalCode::kFull, "no room");
  const absl::Status status = DecodeRefusal(bytes, "h:1", absl::UnavailableError("fallback"));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("the server says: no room"), absl::string_view::npos) << status;
  EXPECT_EQ(base::DetailOf(status)->peer(), "h:1");
}

TEST(Refusal, ForAnotherVersionNamesBoth) {
  auto bytes = EncodeRefusal(RefusalCode::kVersion, "whatever");
  bytes[4] = std::byte{3};
  const absl::Status status = DecodeRefusal(bytes, "h:1", absl::UnavailableError("fallback"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("this side speaks version 1, the server version 3"),
            absl::string_view::npos)
      << status;
}

TEST(Refusal, LongTextIsCutAndControlCharactersAreHidden) {
  const auto bytes = EncodeRefusal(RefusalCode::kInternal, std::string(500, 'x') + "\n");
  EXPECT_LE(bytes.size(), 148u);
  const absl::Status status = DecodeRefusal(EncodeRefusal(RefusalCode::kInternal, "a\x1b[2Jb"), "p",
                                            absl::UnavailableError("fallback"));
  EXPECT_NE(status.message().find("a?[2Jb"), absl::string_view::npos) << status;
}

TEST(Refusal, OtherBytesGiveTheFallback) {
  const std::vector<std::byte> zeros(148);
  EXPECT_EQ(DecodeRefusal(zeros, "p", absl::UnavailableError("fallback")).message(), "fallback");
  EXPECT_EQ(DecodeRefusal({}, "p", absl::UnavailableError("fallback")).message(), "fallback");
}

}  // namespace
}  // namespace sluice::peer
