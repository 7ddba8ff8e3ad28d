// SPDX-License-Identifier: Apache-2.0
#include "middleware/call/stream_end.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/error_detail.pb.h"  // any message will do

namespace sluice::call {
namespace {

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
    ASSERT_TRUE(end.HasRoom());
    end.CountSent();
  }
  EXPECT_FALSE(end.HasRoom());
  EXPECT_TRUE(end.Grant(StreamEnd::kWindow)) << "said before";
  EXPECT_TRUE(end.Grant(3)) << "an old one";
  EXPECT_FALSE(end.HasRoom());
  EXPECT_TRUE(end.Grant(StreamEnd::kWindow + 1));
  EXPECT_TRUE(end.HasRoom());
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
  end.CountSent();
  ASSERT_TRUE(Receive(end, ""));
  end.SetEnd();
  end.Reset();
  EXPECT_EQ(end.unread(), 0u);
  EXPECT_FALSE(end.end());
  EXPECT_EQ(end.Read(&message), ReadResult::kNothing);
  EXPECT_TRUE(end.HasRoom());
}

}  // namespace
}  // namespace sluice::call
