// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/stream_end.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/error_detail.pb.h"  // any message will do

namespace sluice::call {
namespace stream_end_test {

std::string Bytes(const std::string& cause) {
  ErrorDetail detail;
  detail.set_cause(cause);
  return detail.SerializeAsString();
}
bool Receive(StreamEnd& end, const std::string& bytes) {
  return end.Receive(std::as_bytes(std::span(bytes)));
}

TEST(StreamEndTest, SendsAsMuchAsTheWindowSays) {
  StreamEnd end;
  for (uint32_t i = 0; i < StreamEnd::kWindow; ++i) {
    ASSERT_TRUE(end.HasRoom(0));
    end.CountSent(0);
  }
  EXPECT_FALSE(end.HasRoom(0));
  EXPECT_TRUE(end.Grant(StreamEnd::kWindow)) << "said before";
  EXPECT_TRUE(end.Grant(3)) << "an old one";
  EXPECT_FALSE(end.HasRoom(0));
  EXPECT_TRUE(end.Grant(StreamEnd::kWindow + 1));
  EXPECT_TRUE(end.HasRoom(0));
  EXPECT_FALSE(end.Grant(StreamEnd::kWindow + 2 + StreamEnd::kMaxGrant));
}

TEST(StreamEndTest, TakesNoMoreThanItsWindowAndReadsInOrder) {
  StreamEnd end;
  ErrorDetail message;
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < StreamEnd::kWindow; ++i)
      ASSERT_TRUE(Receive(end, Bytes(std::to_string(i))));
    EXPECT_FALSE(Receive(end, Bytes("one too many")));
    for (uint32_t i = 0; i < StreamEnd::kWindow; ++i) {
      ASSERT_EQ(end.Read(&message), ReadResult::kMessage);
      EXPECT_EQ(message.cause(), std::to_string(i));
    }
    EXPECT_EQ(end.Read(&message), ReadResult::kNothing);
  }
  ASSERT_TRUE(Receive(end, ""));
  end.SetEnd();
  EXPECT_FALSE(Receive(end, "")) << "nothing follows the end";
  EXPECT_EQ(end.Read(&message), ReadResult::kMessage) << "an empty one is one";
  EXPECT_EQ(end.Read(&message), ReadResult::kEnd);
}

TEST(StreamEndTest, WindowIsDueWhenHalfOfItIsRead) {
  StreamEnd end;
  ErrorDetail message;
  for (uint32_t i = 0; i < StreamEnd::kWindow; ++i) ASSERT_TRUE(Receive(end, ""));
  for (uint32_t i = 0; i < StreamEnd::kWindow / 2; ++i) {
    EXPECT_FALSE(end.WindowIsDue());
    end.Read(&message);
  }
  EXPECT_TRUE(end.WindowIsDue());
  EXPECT_EQ(end.SayWindow(), StreamEnd::kWindow + StreamEnd::kWindow / 2);
  EXPECT_FALSE(end.WindowIsDue());
  end.SetEnd();
  for (uint32_t i = 0; i < StreamEnd::kWindow / 2; ++i) end.Read(&message);
  EXPECT_FALSE(end.WindowIsDue()) << "nobody sends any more";
}

TEST(StreamEndTest, TakesAsMuchAsAWindowOfAnotherSizeAndReadsInOrder) {
  constexpr uint32_t kLarge = 100;
  StreamEnd end;
  EXPECT_FALSE(end.FirstWindowIsDue());
  end.SetWindow(kLarge);
  EXPECT_TRUE(end.FirstWindowIsDue());
  EXPECT_EQ(end.SayWindow(), kLarge);
  ErrorDetail message;
  uint32_t in = 0;
  uint32_t out = 0;
  for (int round = 0; round < 5; ++round) {
    while (end.unread() < kLarge) ASSERT_TRUE(Receive(end, Bytes(std::to_string(in++))));
    EXPECT_TRUE(end.full());
    EXPECT_FALSE(Receive(end, Bytes("one too many")));
    for (uint32_t i = 0; i < kLarge / 2; ++i) {
      EXPECT_FALSE(end.WindowIsDue());
      ASSERT_EQ(end.Read(&message), ReadResult::kMessage);
      ASSERT_EQ(message.cause(), std::to_string(out++));
    }
    EXPECT_TRUE(end.WindowIsDue());
    EXPECT_EQ(end.SayWindow(), out + kLarge);
  }
  end.Reset();
  EXPECT_EQ(end.window(), StreamEnd::kWindow);
  for (uint32_t i = 0; i < StreamEnd::kWindow; ++i) ASSERT_TRUE(Receive(end, ""));
  EXPECT_FALSE(Receive(end, ""));
}

TEST(StreamEndTest, LargeMessagesCountByTheirBytes) {
  constexpr size_t kMiB = 1 << 20;
  EXPECT_EQ(StreamEnd::CostOf(0), 1u);
  EXPECT_EQ(StreamEnd::CostOf(kMiB), 1u);
  EXPECT_EQ(StreamEnd::CostOf(kMiB + 1), 2u);
  EXPECT_EQ(StreamEnd::CostOf(8 * kMiB), 8u);
  EXPECT_EQ(StreamEnd::CostOf(100 * kMiB), 8u);
  StreamEnd sender;
  StreamEnd reader;
  const std::string large = Bytes(std::string(9 * kMiB, 'x'));
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(sender.HasRoom(large.size()));
    sender.CountSent(large.size());
    ASSERT_TRUE(Receive(reader, large));
  }
  EXPECT_FALSE(sender.HasRoom(0)) << "they have taken the whole window";
  EXPECT_FALSE(Receive(reader, "")) << "and who sends all the same is found out";
  ErrorDetail message;
  ASSERT_EQ(reader.Read(&message), ReadResult::kMessage);
  EXPECT_EQ(message.cause().size(), 9 * kMiB);
  ASSERT_TRUE(reader.WindowIsDue());
  ASSERT_TRUE(sender.Grant(reader.SayWindow()));
  EXPECT_TRUE(sender.HasRoom(large.size()));
}

// Whatever was read before and is not said, a reader that has read everything has room for the largest message.
TEST(StreamEndTest, TheLargestMessageAlwaysGetsItsTurn) {
  for (int before = 0; before < 40; ++before) {
    StreamEnd sender;
    StreamEnd reader;
    ErrorDetail message;
    for (int i = 0; i < before; ++i) {
      sender.CountSent(0);
      ASSERT_TRUE(Receive(reader, ""));
      ASSERT_EQ(reader.Read(&message), ReadResult::kMessage);
      if (reader.WindowIsDue()) {
        ASSERT_TRUE(sender.Grant(reader.SayWindow()));
      }
    }
    EXPECT_TRUE(sender.HasRoom(size_t{1} << 31)) << before;
  }
}

TEST(StreamEndTest, MessageOfAnotherTypeIsSaidAndGone) {
  StreamEnd end;
  ErrorDetail message;
  ASSERT_TRUE(Receive(end, "\xff\xff\xff"));
  ASSERT_TRUE(Receive(end, Bytes("good")));
  EXPECT_EQ(end.Read(&message), ReadResult::kMalformed);
  EXPECT_EQ(end.Read(&message), ReadResult::kMessage);
  EXPECT_EQ(message.cause(), "good");
}

TEST(StreamEndTest, ResetIsAsNew) {
  StreamEnd end;
  ErrorDetail message;
  end.CountSent(0);
  ASSERT_TRUE(Receive(end, ""));
  end.SetEnd();
  end.Reset();
  EXPECT_TRUE(end.empty());
  EXPECT_FALSE(end.end());
  EXPECT_EQ(end.Read(&message), ReadResult::kNothing);
  EXPECT_TRUE(end.HasRoom(0));
}

}  // namespace stream_end_test
}  // namespace sluice::call
