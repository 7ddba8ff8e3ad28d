// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/metadata_conversion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace sluice::gateway {
namespace metadata_conversion_test {

using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(MetadataConversionTest, OwnHeadersOfGrpcStayBehind) {
  const GrpcMetadata entries = {
      {"user-agent", "grpc-c++"}, {"grpc-trace-bin", "x"}, {"content-type", "a"},
      {"te", "trailers"},         {"token", "t"},          {"token", "u"},
      {"raw-bin", "\x01\xff"}};
  Metadata metadata;
  ASSERT_TRUE(FromGrpc(entries, &metadata).ok());
  EXPECT_THAT(metadata.entries(), UnorderedElementsAre(Pair("token", "t"), Pair("token", "u"),
                                                       Pair("raw-bin", "\x01\xff")));
}

TEST(MetadataConversionTest, WhatDoesNotFitIsAnError) {
  const std::string long_key(65, 'k');
  Metadata metadata;
  EXPECT_TRUE(absl::IsInvalidArgument(FromGrpc({{long_key, "v"}}, &metadata)));
  const std::string long_value(9000, 'v');
  EXPECT_TRUE(absl::IsResourceExhausted(FromGrpc({{"key", long_value}}, &metadata)));
}

TEST(MetadataConversionTest, EntriesAfterOneThatDoesNotFitAreKept) {
  const std::string long_key(65, 'k');
  Metadata metadata;
  EXPECT_TRUE(
      absl::IsInvalidArgument(FromGrpc({{"a", "1"}, {long_key, "v"}, {"token", "t"}}, &metadata)));
  EXPECT_THAT(metadata.entries(), UnorderedElementsAre(Pair("a", "1"), Pair("token", "t")));
}

// gRPC takes no key of 4 characters for a binary one, and aborts the process for bytes in another.
TEST(MetadataConversionTest, AKeyThatIsNothingButTheSuffixIsNotBinary) {
  Metadata metadata;
  ASSERT_TRUE(metadata.Add("-bin", "\x01").ok());
  ASSERT_TRUE(metadata.Add("-bin", "text").ok());
  EXPECT_THAT(ToGrpc(metadata),
              UnorderedElementsAre(Pair("-bin-bin", "\x01"), Pair("-bin", "text")));
}

TEST(MetadataConversionTest, ValuesThatGrpcCannotCarryGetABinaryKey) {
  Metadata metadata;
  ASSERT_TRUE(metadata.Add("text", "a b~").ok());
  ASSERT_TRUE(metadata.Add("bytes", "\xff").ok());
  ASSERT_TRUE(metadata.Add("raw-bin", "\xff").ok());
  ASSERT_TRUE(metadata.Add("grpc-status", "0").ok());
  EXPECT_THAT(ToGrpc(metadata),
              UnorderedElementsAre(Pair("text", "a b~"), Pair("bytes-bin", "\xff"),
                                   Pair("raw-bin", "\xff")));
}

}  // namespace metadata_conversion_test
}  // namespace sluice::gateway
