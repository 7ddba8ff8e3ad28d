// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/metadata.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "middleware/api/call_context.h"
#include "middleware/api/server_context.h"
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
  const Metadata garbled = Metadata::FromWire("\xff\xff");
  EXPECT_TRUE(garbled.entries().empty());
  const Metadata empty = Metadata::FromWire("");
  EXPECT_TRUE(empty.entries().empty());
  // An entry with a key that is none is left out, the others stay.
  Metadata good;
  ASSERT_TRUE(good.Add("ok", "1").ok());
  const std::string bad_key = std::string("\x0a\x06\x0a\x01\x41\x12\x01\x31", 8);  // "A": "1"
  const Metadata mixed = Metadata::FromWire(bad_key + good.wire());
  ASSERT_EQ(mixed.entries().size(), 1u);
  EXPECT_EQ(mixed.Find("ok"), "1");
}

// Whether these compile. What they return would refer to an object that is gone at the end of the statement.
template <typename Type>
concept FindsIn = requires(Type&& metadata) {
  std::forward<Type>(metadata).Find("key");
};
template <typename Type>
concept ListsEntriesOf = requires(Type&& metadata) {
  std::forward<Type>(metadata).entries();
};
template <typename Type>
concept TakesWireOf = requires(Type&& metadata) {
  std::forward<Type>(metadata).wire();
};
template <typename Type>
concept ReadsMetadataOf = requires(Type&& context) {
  std::forward<Type>(context).metadata();
};
template <typename Type>
concept ReadsReplyMetadataOf = requires(Type&& context) {
  std::forward<Type>(context).reply_metadata();
};
template <typename Type>
concept ReadsReplyAttachmentOf = requires(Type&& context) {
  std::forward<Type>(context).reply_attachment();
};

static_assert(FindsIn<Metadata&> && FindsIn<const Metadata&>);
static_assert(!FindsIn<Metadata> && !FindsIn<const Metadata>);
static_assert(ListsEntriesOf<const Metadata&> && !ListsEntriesOf<Metadata>);
static_assert(TakesWireOf<const Metadata&> && !TakesWireOf<Metadata>);
static_assert(ReadsMetadataOf<const CallContext&> && !ReadsMetadataOf<CallContext>);
static_assert(ReadsReplyMetadataOf<const CallContext&> && !ReadsReplyMetadataOf<CallContext>);
static_assert(ReadsReplyAttachmentOf<const CallContext&> && !ReadsReplyAttachmentOf<CallContext>);
// And a loop over what a context returns is no loop over a temporary.
static_assert(
    std::is_same_v<decltype(std::declval<const CallContext&>().metadata()), const Metadata&>);
static_assert(
    std::is_same_v<decltype(std::declval<const CallContext&>().reply_metadata()), const Metadata&>);
static_assert(
    std::is_same_v<decltype(std::declval<const ServerContext&>().metadata()), const Metadata&>);

// What a call would leave there.
void Arrive(CallContext& context, std::string_view key, std::string_view value) {
  Metadata sent;
  ASSERT_TRUE(sent.Add(key, value).ok());
  context.ReplyBeside()->metadata = sent.wire();
}

TEST(MetadataTest, ReferenceToReplyMetadataStaysValidFromCallToCall) {
  CallContext context = CallContext::NoDeadline();
  const Metadata& got = context.reply_metadata();
  EXPECT_TRUE(got.entries().empty());
  Arrive(context, "a", "1");
  std::vector<std::string> seen;
  for (const auto& [key, value] : context.reply_metadata().entries()) seen.push_back(key + value);
  EXPECT_EQ(seen, std::vector<std::string>{"a1"});
  const std::string_view value = *context.reply_metadata().Find("a");
  EXPECT_EQ(&context.reply_metadata(), &got);
  EXPECT_EQ(value, "1") << "asking again leaves what was found in its place";
  Arrive(context, "b", "2");
  EXPECT_EQ(context.reply_metadata().Find("a"), std::nullopt);
  EXPECT_EQ(got.Find("b"), "2");
  context.ReplyBeside();
  EXPECT_TRUE(context.reply_metadata().entries().empty());
}

TEST(MetadataTest, CopyOfAContextHasNoReplyMetadata) {
  CallContext context = CallContext::NoDeadline();
  Arrive(context, "a", "1");
  const Metadata& got = context.reply_metadata();
  CallContext copy = context;
  EXPECT_TRUE(copy.reply_metadata().entries().empty());
  EXPECT_EQ(got.Find("a"), "1");
  const CallContext moved = std::move(context);
  EXPECT_EQ(&moved.reply_metadata(), &got) << "it goes where the context goes";
  EXPECT_EQ(got.Find("a"), "1");
  Arrive(copy, "c", "3");
  EXPECT_EQ(copy.reply_metadata().Find("c"), "3");
  copy = moved;
  EXPECT_TRUE(copy.reply_metadata().entries().empty());
}

TEST(MetadataTest, ServerContextReadsItOnce) {
  Metadata sent;
  ASSERT_TRUE(sent.Add("who", "me").ok());
  const std::string peer = "h:1";
  const std::string tenant;
  call::Incoming incoming{};
  incoming.peer = &peer;
  incoming.tenant = &tenant;
  incoming.metadata = sent.wire();
  const ServerContext context(incoming);
  const std::string_view value = *context.metadata().Find("who");
  EXPECT_EQ(value, "me");
  EXPECT_EQ(context.metadata().Find("who")->data(), value.data());
}

}  // namespace metadata_test
}  // namespace sluice
