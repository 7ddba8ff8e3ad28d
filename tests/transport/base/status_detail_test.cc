// SPDX-License-Identifier: Apache-2.0
#include "transport/base/status_detail.h"

#include <string>

#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "proto/error_detail.pb.h"  // a program's own copy of the message
#include "transport/base/error.h"

namespace sluice::base {
namespace status_detail_test {

absl::Status Sample(bool retry_safe = true) {
  return Error(absl::StatusCode::kUnavailable, "not sent",
               {.layer = "call",
                .peer = "h:1",
                .operation = "/shop.Shop/Buy",
                .cause = "no \"credit\"",
                .remedy = "try again",
                .syndrome = 12,
                .vendor_code = 3'000'000'000,
                .retry_safe = retry_safe});
}

std::string PayloadOf(const absl::Status& status) {
  return std::string(*status.GetPayload(kErrorDetailUrl));
}

TEST(StatusDetail, HasEachField) {
  const auto detail = DetailOf(Sample());
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->layer(), "call");
  EXPECT_EQ(detail->peer(), "h:1");
  EXPECT_EQ(detail->operation(), "/shop.Shop/Buy");
  EXPECT_EQ(detail->cause(), "no \"credit\"");
  EXPECT_EQ(detail->remedy(), "try again");
  EXPECT_EQ(detail->syndrome(), 12u);
  EXPECT_EQ(detail->vendor_code(), 3'000'000'000u);
  EXPECT_TRUE(detail->retry_safe());
}

TEST(StatusDetail, IsTheMessageOfTheProto) {
  ErrorDetail message;
  ASSERT_TRUE(message.ParseFromString(PayloadOf(Sample())));
  EXPECT_EQ(message.layer(), "call");
  EXPECT_EQ(message.vendor_code(), 3'000'000'000u);
  EXPECT_TRUE(message.retry_safe());
  EXPECT_EQ(message.SerializeAsString(), PayloadOf(Sample()));
  EXPECT_EQ(StatusDetail::Parse(message.SerializeAsString())->Serialise(), PayloadOf(Sample()));
  EXPECT_EQ(StatusDetail().Serialise(), "");
  EXPECT_TRUE(StatusDetail::Parse("").has_value());
}

TEST(StatusDetail, SkipsFieldsOfLaterReleases) {
  // 100: varint 1; 101: text "x"; 102: fixed32.
  const std::string later("\xa0\x06\x01\xaa\x06\x01x\xb5\x06\0\0\0\0", 13);
  const auto detail = StatusDetail::Parse(later + PayloadOf(Sample()));
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->layer(), "call");
}

TEST(StatusDetail, GarbledBytesAreNone) {
  const std::string whole = PayloadOf(Sample());
  for (const std::string& bytes :
       {std::string("\xff\xff\xff"), whole + std::string(1, '\0'), whole + "\x0a",
        std::string("\x0a\xff\xff\xff\xff\x0f"), whole.substr(0, 3)}) {
    EXPECT_FALSE(StatusDetail::Parse(bytes).has_value());
    absl::Status status = absl::InternalError("x");
    status.SetPayload(kErrorDetailUrl, absl::Cord(bytes));
    EXPECT_FALSE(DetailOf(status).has_value());
    EXPECT_FALSE(IsRetrySafe(status));
    EXPECT_FALSE(status.ToString().empty());
  }
}

TEST(DetailOf, StatusWithoutPayload) {
  EXPECT_FALSE(DetailOf(absl::InternalError("x")).has_value());
  EXPECT_FALSE(DetailOf(absl::OkStatus()).has_value());
}

TEST(IsRetrySafe, OnlyIfTheErrorSaysSo) {
  EXPECT_TRUE(IsRetrySafe(Sample(true)));
  EXPECT_FALSE(IsRetrySafe(Sample(false)));
  EXPECT_FALSE(IsRetrySafe(absl::UnavailableError("x")));
  EXPECT_FALSE(IsRetrySafe(absl::OkStatus()));
}

TEST(PrintDetailsAsText, SaysWhatTheMessageDoesNot) {
  EXPECT_EQ(Sample().ToString(),
            "UNAVAILABLE: not sent (peer h:1): no \"credit\"; try again "
            "[type.googleapis.com/sluice.ErrorDetail='layer call, operation /shop.Shop/Buy, "
            "peer h:1, syndrome 12, vendor code 3000000000, safe to retry']");
  EXPECT_EQ(Error(absl::StatusCode::kInternal, "broke", {}).ToString(),
            "INTERNAL: broke [type.googleapis.com/sluice.ErrorDetail='may have run']");
}

TEST(PrintDetailsAsText, LeavesPayloadsOfOthersAsTheyAre) {
  absl::Status status = Error(absl::StatusCode::kInternal, "broke", {.layer = "x"});
  status.SetPayload("u/T", absl::Cord("\n"));
  EXPECT_NE(status.ToString().find("[u/T='\\n']"), std::string::npos) << status.ToString();
}

}  // namespace status_detail_test
}  // namespace sluice::base
