// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/status_payload.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/cord.h"
#include "transport/base/error.h"

namespace sluice::frame {
namespace status_payload_test {

std::span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::Status Sample(const std::string& what = "no such key") {
  return base::Error(absl::StatusCode::kNotFound, what,
                     {.layer = "store",
                      .peer = "h:1",
                      .operation = "get",
                      .cause = "never put",
                      .remedy = "put it",
                      .syndrome = 5,
                      .vendor_code = 6,
                      .retry_safe = true});
}

TEST(StatusPayloadTest, GoldenBytes) {
  absl::Status status = absl::NotFoundError("gone");
  EXPECT_EQ(EncodeStatus(status, 100), std::string("\x04\0\0\0gone", 8));
  status.SetPayload("u/T", absl::Cord("xy"));
  EXPECT_EQ(EncodeStatus(status, 100), std::string("\x04\0\0\0gone\x03\0u/T\x02\0\0\0xy", 19));
}

// A status of a user: any payloads, and a long text.
absl::Status UsersOwn(size_t text_bytes) {
  absl::Status status = Sample(std::string(text_bytes, 'x'));
  status.SetPayload("type.googleapis.com/shop.OutOfStock", absl::Cord(std::string(3000, '\0')));
  status.SetPayload("no url at all", absl::Cord());
  absl::Cord chunks("one, ");
  chunks.Append(absl::Cord(std::string(5000, 'c')));
  status.SetPayload("type.googleapis.com/shop.Hint", chunks);
  return status;
}

TEST(StatusPayloadTest, PayloadsOfUsersAndLongTextsSurvive) {
  for (const size_t text_bytes : {0, 1023, 1025, 7000}) {
    EXPECT_EQ(DecodeStatus(5, Bytes(EncodeStatus(UsersOwn(text_bytes), 16336))),
              UsersOwn(text_bytes));
  }
}

TEST(StatusPayloadTest, FitsExactlyOrIsShortenedAndSaysSo) {
  const std::string whole = EncodeStatus(UsersOwn(3000), 1 << 20);
  const auto size = static_cast<uint32_t>(whole.size());
  EXPECT_EQ(EncodeStatus(UsersOwn(3000), size), whole);
  const std::string shortened = EncodeStatus(UsersOwn(3000), size - 1);
  EXPECT_LT(shortened.size(), size);
  const absl::Status got = DecodeStatus(5, Bytes(shortened));
  const std::string text(got.message());
  EXPECT_EQ(text.find(std::string(3000, 'x')), 0u) << "the text comes first";
  EXPECT_NE(
      text.find(" bytes, and 1 payload of 3000 bytes left out: raise limits.max_message_bytes"),
      std::string::npos)
      << text;
  EXPECT_TRUE(base::DetailOf(got)->retry_safe());
  EXPECT_TRUE(got.GetPayload("type.googleapis.com/shop.Hint").has_value());
  EXPECT_FALSE(got.GetPayload("type.googleapis.com/shop.OutOfStock").has_value());
}

TEST(StatusPayloadTest, EachLimitHoldsAndKeepsOurPayloadIfItCan) {
  for (uint32_t limit = kMinStatusBytes; limit < 20000; limit += 37) {
    const std::string payload = EncodeStatus(UsersOwn(9000), limit);
    ASSERT_LE(payload.size(), limit);
    const absl::Status got = DecodeStatus(5, Bytes(payload));
    const bool whole = got == UsersOwn(9000);
    const bool says =
        std::string(got.message()).find("limits.max_message_bytes") != std::string::npos;
    ASSERT_TRUE(whole || says || limit < 500) << limit;
    ASSERT_TRUE(base::DetailOf(got).has_value() || limit < 700) << limit;
  }
}

TEST(StatusPayloadTest, TooManyPayloadsAreLeftOutAndCounted) {
  absl::Status status = Sample();
  for (uint32_t i = 0; i < kMaxStatusPayloads; ++i) {
    status.SetPayload("u/" + std::to_string(i), absl::Cord("v"));
  }
  const absl::Status got = DecodeStatus(5, Bytes(EncodeStatus(status, 16336)));
  uint32_t count = 0;
  got.ForEachPayload([&count](absl::string_view, const absl::Cord&) { ++count; });
  EXPECT_EQ(count, kMaxStatusPayloads);
  EXPECT_NE(std::string(got.message()).find("and 1 payload of 1 bytes left out"), std::string::npos)
      << got.message();
}

TEST(StatusPayloadTest, TextAndDetailSurvive) {
  const absl::Status got = DecodeStatus(5, Bytes(EncodeStatus(Sample(), 4096)));
  EXPECT_EQ(got, Sample());
  const auto detail = base::DetailOf(got);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->layer(), "store");
  EXPECT_EQ(detail->syndrome(), 5u);
  EXPECT_EQ(detail->vendor_code(), 6u);
  EXPECT_TRUE(detail->retry_safe());
}

TEST(StatusPayloadTest, LongTextIsCutAtItsBoundAndSaysSo) {
  const absl::Status got =
      DecodeStatus(5, Bytes(EncodeStatus(absl::NotFoundError(std::string(5000, 'x')), 2000)));
  EXPECT_EQ(got.message().substr(0, 1500), std::string(1500, 'x'));
  EXPECT_NE(std::string(got.message())
                .find("x... [text of 5000 bytes: raise limits.max_message_bytes on both sides]"),
            std::string::npos)
      << got.message();
}

TEST(StatusPayloadTest, CutKeepsUtf8Whole) {
  std::string text;
  while (text.size() < 3000) text += "ä€";  // 2 and 3 bytes
  for (uint32_t limit = kMinStatusBytes; limit < 60; ++limit) {
    const std::string payload = EncodeStatus(absl::NotFoundError(text), limit);
    EXPECT_LE(payload.size(), limit);
    std::string message(DecodeStatus(5, Bytes(payload)).message());
    if (message.size() >= 3 && message.substr(message.size() - 3) == "...")
      message.resize(message.size() - 3);
    // What is left of the text ends between two characters.
    EXPECT_EQ(text.substr(0, message.size()), message);
    EXPECT_NE(static_cast<uint8_t>(text[message.size()]) & 0xc0, 0x80) << limit;
  }
}

TEST(StatusPayloadTest, BrokenPayloadKeepsTheCode) {
  for (const std::string& payload :
       {std::string(), std::string("\x01", 1), std::string("\x05\0\0\0abc", 7),
        std::string("\xff\xff\xff\xff", 4) + std::string(70000, 'x')}) {
    const absl::Status got = DecodeStatus(14, Bytes(payload));
    EXPECT_EQ(got.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(std::string(got.message()).find("error reply"), std::string::npos);
  }
}

TEST(StatusPayloadTest, PayloadsInFrontOfABreakAreKept) {
  absl::Status whole = absl::NotFoundError("no");
  whole.SetPayload("a/A", absl::Cord("1"));
  const std::string good = EncodeStatus(whole, 1000);
  for (const std::string& rest : {std::string("\x03"), std::string("\x03\0u/T", 5),
                                  std::string("\x03\0u/T\xff\xff\xff\xff", 9)}) {
    EXPECT_EQ(DecodeStatus(5, Bytes(good + rest)), whole);
  }
}

TEST(StatusPayloadTest, OurPayloadFromAPeerThatIsGarbledIsNoDetail) {
  absl::Status garbled = absl::NotFoundError("no");
  garbled.SetPayload(base::kErrorDetailUrl, absl::Cord("\xff\xff\xff"));
  const absl::Status got = DecodeStatus(5, Bytes(EncodeStatus(garbled, 1000)));
  EXPECT_EQ(got, garbled);
  EXPECT_FALSE(base::DetailOf(got).has_value());
}

TEST(StatusPayloadTest, RandomDamageNeverLosesTheCode) {
  const std::string whole = EncodeStatus(Sample(), 4096);
  for (uint32_t seed = 1; seed <= 5000; ++seed) {
    std::mt19937 random(seed);
    std::string payload = whole;
    for (uint32_t damage = random() % 5; damage > 0; --damage) {
      payload[random() % payload.size()] = static_cast<char>(random());
    }
    payload.resize(random() % (payload.size() + 1));
    payload.shrink_to_fit();
    const auto code = static_cast<uint16_t>(1 + random() % 16);
    const absl::Status got = DecodeStatus(code, Bytes(payload));
    ASSERT_EQ(static_cast<int>(got.code()), code) << "seed " << seed;
    ASSERT_LE(got.message().size(), whole.size() + 100) << "seed " << seed;
  }
}

}  // namespace status_payload_test
}  // namespace sluice::frame
