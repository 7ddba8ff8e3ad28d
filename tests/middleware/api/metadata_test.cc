// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/metadata.h"

#include <gtest/gtest.h>

#include <string>

#include "middleware/frame/frame.h"

namespace sluice {
namespace metadata_test {

TEST(MetadataTest, ReadsWhatItHasWritten) {
  Metadata sent;
  EXPECT_TRUE(sent.Add("who", "me").ok());
  EXPECT_TRUE(sent.Add("x-1_2.3", std::string("\0\xff", 2)).ok());
  EXPECT_TRUE(sent.Add("who", "you").ok());
  const Metadata got = Metadata::FromWire(sent.wire());
  EXPECT_EQ(got.entries(), sent.entries());
  EXPECT_EQ(got.Find("who"), "me") << "the first";
  EXPECT_EQ(got.Find("nobody"), std::nullopt);
  EXPECT_EQ(got.entries()[1].second, std::string("\0\xff", 2));
}

TEST(MetadataTest, KeyThatIsNoneIsRefused) {
  Metadata metadata;
  for (const std::string& key : {std::string(), std::string("Who"), std::string("a b"),
                                 std::string("\n"), std::string(65, 'a')}) {
    const absl::Status status = metadata.Add(key, "x");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << key;
    EXPECT_EQ(std::string(status.message()).find('\n'), std::string::npos);
  }
  EXPECT_TRUE(metadata.wire().empty());
  EXPECT_TRUE(metadata.Add(std::string(64, 'a'), "").ok());
}

TEST(MetadataTest, TooMuchIsRefusedAndWhatWasThereStays) {
  Metadata metadata;
  EXPECT_TRUE(metadata.Add("a", std::string(8000, 'x')).ok());
  EXPECT_EQ(metadata.Add("b", std::string(200, 'x')).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(metadata.entries().size(), 1u);
  EXPECT_LE(metadata.wire().size(), frame::kMaxMetadataBytes);
}

TEST(MetadataTest, BytesOfAPeerThatAreNoneGiveNothing) {
  EXPECT_TRUE(Metadata::FromWire("\xff\xff").entries().empty());
  EXPECT_TRUE(Metadata::FromWire("").entries().empty());
  // An entry with a key that is none is left out, the others stay.
  Metadata good;
  ASSERT_TRUE(good.Add("ok", "1").ok());
  const std::string bad_key = std::string("\x0a\x06\x0a\x01\x41\x12\x01\x31", 8);  // "A": "1"
  const Metadata mixed = Metadata::FromWire(bad_key + good.wire());
  ASSERT_EQ(mixed.entries().size(), 1u);
  EXPECT_EQ(mixed.Find("ok"), "1");
}

}  // namespace metadata_test
}  // namespace sluice
