// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/refusal.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/error.h"
#include "transport/base/random.h"

namespace sluice::peer {
namespace refusal_test {

const absl::Status kFallback = absl::UnavailableError("fallback");

TEST(Refusal, RoundTripGivesCodeAndText) {
  const auto bytes = EncodeRefusal(RefusalCode::kFull, "no room");
  const absl::Status status = DecodeRefusal(bytes, "h:1", kFallback);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("the server says: no room"), absl::string_view::npos) << status;
  EXPECT_EQ(base::DetailOf(status)->peer(), "h:1");
}

TEST(Refusal, EachStatusGoesAcross) {
  const struct {
    absl::StatusCode sent, got;
  } cases[] = {
      {absl::StatusCode::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      {absl::StatusCode::kFailedPrecondition, absl::StatusCode::kFailedPrecondition},
      {absl::StatusCode::kUnauthenticated, absl::StatusCode::kUnauthenticated},
      {absl::StatusCode::kResourceExhausted, absl::StatusCode::kResourceExhausted},
      {absl::StatusCode::kInternal, absl::StatusCode::kUnavailable},
  };
  for (const auto& one : cases) {
    const absl::Status status =
        DecodeRefusal(EncodeRefusal(absl::Status(one.sent, "why")), "h:1", kFallback);
    EXPECT_EQ(status.code(), one.got) << status;
    EXPECT_FALSE(base::DetailOf(status)->remedy().empty()) << status;
  }
  EXPECT_EQ(DecodeRefusal(EncodeRefusal(RefusalCode::kTooOften, "often"), "h:1", kFallback).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DecodeRefusal(EncodeRefusal(RefusalCode::kShutdown, "bye"), "h:1", kFallback).code(),
            absl::StatusCode::kUnavailable);
}

TEST(Refusal, ForAnotherVersionNamesBoth) {
  auto bytes = EncodeRefusal(RefusalCode::kVersion, "whatever");
  bytes[4] = std::byte{9};
  const absl::Status status = DecodeRefusal(bytes, "h:1", kFallback);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("this side speaks version 6, the server version 9"),
            absl::string_view::npos)
      << status;
}

TEST(Refusal, CookieComesBackWholeAndNothingElseIsTakenForOne) {
  const Cookie cookie = {std::byte{1}, std::byte{2}, std::byte{0xff}, std::byte{0}};
  const auto bytes = EncodeRefusal(cookie);
  EXPECT_EQ(bytes.size(), 16u);
  ASSERT_TRUE(CookieIn(bytes).has_value());
  EXPECT_EQ(*CookieIn(bytes), cookie);
  auto padded = bytes;
  padded.resize(148);
  EXPECT_TRUE(CookieIn(padded).has_value());
  for (size_t at = 0; at < 8; ++at) {
    auto wrong = bytes;
    wrong[at] ^= std::byte{0x40};
    EXPECT_FALSE(CookieIn(wrong).has_value()) << at;
  }
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(CookieIn(Bytes(bytes).first(size)).has_value()) << size;
  }
  EXPECT_FALSE(CookieIn(EncodeRefusal(RefusalCode::kFull, "8 bytes!")).has_value());
  // One who has come back often enough hears an error.
  const absl::Status status = DecodeRefusal(bytes, "h:1", kFallback);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("asked for a cookie time and again"), absl::string_view::npos)
      << status;
}

TEST(Refusal, LongTextIsCutAndControlCharactersAreHidden) {
  const auto bytes = EncodeRefusal(RefusalCode::kInternal, std::string(500, 'x') + "\n");
  EXPECT_LE(bytes.size(), 148u);
  const absl::Status status =
      DecodeRefusal(EncodeRefusal(RefusalCode::kInternal, "a\x1b[2Jb"), "p", kFallback);
  EXPECT_NE(status.message().find("a?[2Jb"), absl::string_view::npos) << status;
}

TEST(Refusal, OtherBytesGiveTheFallback) {
  const std::vector<std::byte> zeros(148);
  EXPECT_EQ(DecodeRefusal(zeros, "p", kFallback).message(), "fallback");
  EXPECT_EQ(DecodeRefusal({}, "p", kFallback).message(), "fallback");
}

TEST(Refusal, SurvivesGarbage) {
  base::SeededRandom random(20261121);
  const auto valid = EncodeRefusal(RefusalCode::kFull, "no room");
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes = valid;
    bytes.resize(random.Below(200));
    for (uint64_t changes = random.Below(4); changes > 0 && !bytes.empty(); --changes) {
      bytes[random.Below(bytes.size())] = static_cast<std::byte>(random.Next64());
    }
    ASSERT_FALSE(DecodeRefusal(bytes, "peer", kFallback).ok());
  }
}

}  // namespace refusal_test
}  // namespace sluice::peer
