// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/status_payload.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/cord.h"
#include "proto/error_detail.pb.h"
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
  EXPECT_EQ(EncodeStatus(absl::NotFoundError("gone"), 100), std::string("\x04\0gone", 6));
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
      DecodeStatus(5, Bytes(EncodeStatus(absl::NotFoundError(std::string(5000, 'x')), 8192)));
  EXPECT_EQ(got.message(), std::string(kMaxStatusTextBytes - 3, 'x') + "...");
}

TEST(StatusPayloadTest, CutKeepsUtf8Whole) {
  std::string text;
  while (text.size() < 3000) text += "ä€";  // 2 and 3 bytes
  for (uint32_t limit = 2; limit < 60; ++limit) {
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

TEST(StatusPayloadTest, DetailThatDoesNotFitIsLeftOut) {
  const std::string whole = EncodeStatus(Sample(), 4096);
  const std::string tight = EncodeStatus(Sample(), static_cast<uint32_t>(whole.size()));
  EXPECT_EQ(tight, whole);
  const absl::Status got =
      DecodeStatus(5, Bytes(EncodeStatus(Sample(), static_cast<uint32_t>(whole.size()) - 1)));
  EXPECT_EQ(got.message(), Sample().message());
  EXPECT_FALSE(base::DetailOf(got).has_value());
  EXPECT_FALSE(
      base::DetailOf(DecodeStatus(5, Bytes(EncodeStatus(Sample(std::string(900, 'w')), 8192))))
          ->cause()
          .empty());
}

TEST(StatusPayloadTest, BrokenPayloadKeepsTheCode) {
  for (const std::string& payload :
       {std::string(), std::string("\x01", 1), std::string("\x05\0abc", 5),
        std::string("\xff\xff", 2) + std::string(70000, 'x')}) {
    const absl::Status got = DecodeStatus(14, Bytes(payload));
    EXPECT_EQ(got.code(), absl::StatusCode::kUnavailable);
    EXPECT_NE(std::string(got.message()).find("error reply"), std::string::npos);
  }
}

TEST(StatusPayloadTest, DetailThatIsNoDetailIsDropped) {
  const absl::Status got = DecodeStatus(5, Bytes(std::string("\x02\0no", 4) + "\xff\xff\xff"));
  EXPECT_EQ(got, absl::NotFoundError("no"));
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
    ASSERT_LE(got.message().size(), kMaxStatusTextBytes) << "seed " << seed;
  }
}

}  // namespace status_payload_test
}  // namespace sluice::frame
