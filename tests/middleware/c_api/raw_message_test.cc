// SPDX-License-Identifier: Apache-2.0
#include "middleware/c_api/raw_message.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/middleware/api/chat.pb.h"

namespace sluice::c_api {
namespace raw_message_test {

TEST(RawMessageTest, BytesOfAnyLengthPassUnchanged) {
  // 16 bytes are the border between two ways of protobuf's parser.
  for (const size_t size : {0u, 1u, 15u, 16u, 17u, 63u, 1000u, 100'000u}) {
    std::string bytes(size, '\0');
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(255 - i % 251);
    RawMessage message;
    ASSERT_TRUE(message.ParseFromString(bytes)) << size;
    EXPECT_EQ(message.bytes(), bytes);
    EXPECT_EQ(message.SerializeAsString(), bytes);
    EXPECT_EQ(message.ByteSizeLong(), size);
    EXPECT_EQ(message.Take(), bytes);
    EXPECT_TRUE(message.bytes().empty());
  }
}

TEST(RawMessageTest, ParsingReplacesWhatWasThere) {
  RawMessage message;
  ASSERT_TRUE(message.ParseFromString(std::string(100, 'a')));
  ASSERT_TRUE(message.ParseFromString("b"));
  EXPECT_EQ(message.bytes(), "b");
}

TEST(RawMessageTest, SerialisesWhatItRefersTo) {
  tests::chat::Line line;
  line.set_text("hello");
  const std::string bytes = line.SerializeAsString();
  const RawMessage message(bytes);
  EXPECT_EQ(message.bytes().data(), bytes.data()) << "it was copied";
  tests::chat::Line parsed;
  ASSERT_TRUE(parsed.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(parsed.text(), "hello");
}

// The undefined-behaviour sanitizer judges this: memcpy() takes no null pointer, whatever the size.
TEST(RawMessageTest, MessageOfNoBytesSerialises) {
  const RawMessage message(std::string_view(nullptr, 0));
  EXPECT_EQ(message.SerializeAsString(), "");
  RawMessage copy;
  copy.CheckTypeAndMergeFrom(message);
  EXPECT_EQ(copy.Take(), "");
}

TEST(RawMessageTest, CopyOwnsItsBytes) {
  std::string bytes(40, 'x');
  const RawMessage message(bytes);
  const std::unique_ptr<google::protobuf::MessageLite> copy(message.New(nullptr));
  copy->CheckTypeAndMergeFrom(message);
  bytes.assign(40, 'y');
  EXPECT_EQ(copy->SerializeAsString(), std::string(40, 'x'));
}

TEST(RawMessageTest, ArenaOwnsAMessageThatIsMadeInIt) {
  google::protobuf::Arena arena;
  RawMessage* const message = RawMessage().New(&arena);
  ASSERT_TRUE(message->ParseFromString(std::string(1000, 'x')));
  EXPECT_EQ(message->bytes().size(), 1000u);
}

}  // namespace raw_message_test
}  // namespace sluice::c_api
