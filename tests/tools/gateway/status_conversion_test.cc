// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/status_conversion.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/cord.h"
#include "tools/gateway/rpc_status.pb.h"

namespace sluice::gateway {
namespace status_conversion_test {

TEST(StatusConversionTest, EachCodeTextAndPayloadComesBack) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  for (int code = 1; code <= 16; ++code) {
    absl::Status status(static_cast<absl::StatusCode>(code), "why: 100 %\n\xff");
    status.SetPayload("a/one", absl::Cord(std::string("\0\xff", 2)));
    status.SetPayload("b/two", absl::Cord("two"));
    const grpc::Status converted = ToGrpc(status);
    EXPECT_EQ(static_cast<int>(converted.error_code()), code);
    EXPECT_EQ(FromGrpc(converted), status);
  }
}

TEST(StatusConversionTest, WithoutPayloadsThereAreNoDetails) {
  EXPECT_EQ(ToGrpc(absl::NotFoundError("x")).error_details(), "");
}

TEST(StatusConversionTest, ALongStatusIsShortenedAndSaysSo) {
  absl::Status status = absl::InternalError(std::string(5000, 'x'));
  status.SetPayload("a/fits", absl::Cord(std::string(500, 'a')));
  status.SetPayload("b/too_long", absl::Cord(std::string(6000, 'b')));
  const grpc::Status converted = ToGrpc(status);
  const std::string text = converted.error_message();
  EXPECT_NE(text.find("[text of 5000 bytes]"), std::string::npos) << text;
  EXPECT_NE(text.find("[1 of 2 details omitted, 6000 bytes]"), std::string::npos) << text;
  RpcStatus details;
  ASSERT_TRUE(details.ParseFromString(converted.error_details()));
  EXPECT_EQ(details.message(), text);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "a/fits");
  EXPECT_LE(text.size() + converted.error_details().size() * 4 / 3, kMaxStatusBytes);
}

// It stands in the trailers once. With details it has what they leave.
TEST(StatusConversionTest, ATextOfKilobytesIsNotCut) {
  const std::string text(5000, 'x');
  EXPECT_EQ(ToGrpc(absl::NotFoundError(text)).error_message(), text);
  const std::string two(2000, 'x');
  absl::Status status = absl::NotFoundError(two);
  status.SetPayload("a/short", absl::Cord("a"));
  EXPECT_EQ(ToGrpc(status).error_message(), two);
}

// absl::Status has one payload of a type.
TEST(StatusConversionTest, SeveralDetailsOfOneTypeComeBack) {
  RpcStatus details;
  details.set_code(3);
  details.set_message("x");
  for (const char* value : {"one", "two", "three"}) {
    RpcStatus::Detail* const detail = details.add_details();
    detail->set_type_url("a/same");
    detail->set_value(value);
  }
  const grpc::Status status(grpc::StatusCode::INVALID_ARGUMENT, "x", details.SerializeAsString());
  const absl::Status converted = FromGrpc(status);
  EXPECT_EQ(converted.GetPayload("a/same"), absl::Cord("one"));
  EXPECT_EQ(converted.GetPayload("a/same#2"), absl::Cord("two"));
  EXPECT_EQ(converted.GetPayload("a/same#3"), absl::Cord("three"));
  EXPECT_EQ(ToGrpc(converted).error_details(), status.error_details());
}

TEST(StatusConversionTest, ATextIsNotCutInsideACharacter) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "\xe2\x82\xac";
  const std::string kept = ToGrpc(absl::InternalError(text)).error_message();
  const size_t end = kept.find("... [");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(end % 3, 0u);
  EXPECT_GT(end, 100u);
}

TEST(StatusConversionTest, ATextThatIsNotUtf8IsCutAsWell) {
  const std::string kept = ToGrpc(absl::InternalError(std::string(6000, '\x80'))).error_message();
  EXPECT_GT(kept.find("... ["), 100u);
  EXPECT_NE(kept.find("[text of 6000 bytes]"), std::string::npos);
}

}  // namespace status_conversion_test
}  // namespace sluice::gateway
