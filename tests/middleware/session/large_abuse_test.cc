// SPDX-License-Identifier: Apache-2.0
//
// Large messages of a peer that is broken: its connection ends, nobody else's, and what was lent to others stays theirs.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/middleware/session/large_pair.h"

namespace sluice::session {
namespace large_abuse_test {

using LargeAbuseTest = LargeMessagesTest;

TEST_F(LargeAbuseTest, ATakenForWhatWasNotLentEndsTheConnection) {
  Start();
  ASSERT_TRUE(b_.Send(77, 'x', 0, frame::Kind::kTaken));
  Settle();
  EXPECT_NE(a_.error.find("not lent"), std::string::npos) << a_.error;
}

void Tamper(End& end, const std::function<void(frame::Place&)>& change) {
  end.endpoint->set_tamper([change](std::vector<std::byte>& message) {
    frame::Place place;
    std::memcpy(&place, message.data() + frame::kHeaderBytes, sizeof(place));
    change(place);
    std::memcpy(message.data() + frame::kHeaderBytes, &place, sizeof(place));
    return 1;
  });
}

TEST_F(LargeAbuseTest, APlaceOverTheLimitEndsTheConnection) {
  Start();
  Tamper(a_, [](frame::Place& place) { place.bytes = (1 << 20) + 1; });
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_NE(b_.error.find("over the limit"), std::string::npos) << b_.error;
  EXPECT_EQ(b_.endpoint->large_out(), 0u);
}

// One side fetches more than the other one does: the lower limit is both's.
TEST_F(LargeAbuseTest, APlaceOverWhatWasAgreedEndsTheConnection) {
  Start({.max_large_bytes = 1 << 20}, {.max_large_bytes = 4 << 20});
  Tamper(a_, [](frame::Place& place) { place.bytes = 2 << 20; });
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_NE(b_.error.find("over the limit"), std::string::npos) << b_.error;
}

// What was said to stand there begins with the length of metadata, which is wrong.
TEST_F(LargeAbuseTest, AMessageThatIsMalformedWhereItStandsEndsTheConnection) {
  Start();
  a_.endpoint->set_tamper([](std::vector<std::byte>& message) {
    frame::Header header;
    std::memcpy(&header, message.data(), sizeof(header));
    header.flags |= frame::kFlagMetadata;
    std::memcpy(message.data(), &header, sizeof(header));
    return 1;
  });
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_EQ(b_.received, "");
  EXPECT_NE(b_.error.find("metadata"), std::string::npos) << b_.error;
  EXPECT_EQ(b_.endpoint->large_out(), 0u);
}

TEST_F(LargeAbuseTest, MorePlacesThanMayBeUnderWayEndTheConnection) {
  Start({.credits = 200, .max_large_bytes = 1 << 20});
  b_.endpoint->set_hold_fetches(true);
  a_.endpoint->set_tamper([](std::vector<std::byte>& message) {
    frame::Header header;
    std::memcpy(&header, message.data(), sizeof(header));
    header.flags |= frame::kFlagLarge;
    std::memcpy(message.data(), &header, sizeof(header));
    frame::Encode(frame::Place{.bytes = 100, .number = 1}, message.data() + frame::kHeaderBytes);
    return 1;
  });
  for (uint32_t i = 0; i < kMaxLent; ++i) ASSERT_TRUE(a_.Send(i, 'a', frame::kPlaceBytes));
  Settle();
  EXPECT_EQ(b_.error, "");
  ASSERT_TRUE(a_.Send(99, 'a', frame::kPlaceBytes));
  Settle();
  EXPECT_NE(b_.error.find("more large messages than may be"), std::string::npos) << b_.error;
}

// Each costs this side's stream of reads a reset.
TEST_F(LargeAbuseTest, PlacesThatItsDeviceRefusesEndTheConnection) {
  Start();
  const auto send_refused = [&](uint32_t count, const absl::Status& why) {
    b_.endpoint->set_fail_fetches(why);
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(a_.Send(i, 'a', 10000));
      Settle();
    }
    b_.endpoint->set_fail_fetches(absl::OkStatus());
  };
  for (int round = 0; round < 2; ++round) {  // not in a row
    send_refused(kMaxRefusals - 1, absl::PermissionDeniedError("refused"));
    ASSERT_TRUE(a_.Send(99, 'a', 10000));
    Settle();
  }
  send_refused(kMaxRefusals, absl::ResourceExhaustedError("this side's fault"));
  EXPECT_EQ(b_.error, "");
  send_refused(kMaxRefusals, absl::PermissionDeniedError("refused"));
  EXPECT_NE(b_.error.find("no large message where it says"), std::string::npos) << b_.error;
  EXPECT_FALSE(a_.down.ok());
  EXPECT_EQ(b_.endpoint->large_out(), 0u);
}

TEST_F(LargeAbuseTest, TooMuchBehindALargeMessageEndsTheConnection) {
  constexpr uint32_t kMiB = 1 << 20;
  Start({.max_message_bytes = kMiB, .max_large_bytes = 4 * kMiB});
  for (int round = 0; round < 2; ++round) {  // the first goes, and does not count any more
    b_.endpoint->set_hold_fetches(true);
    ASSERT_TRUE(a_.Send(1, 'a', 2 * kMiB));
    for (int i = 0; i < 60; ++i) {
      ASSERT_TRUE(a_.Send(1, 'b', kMiB - frame::kHeaderBytes, frame::Kind::kStreamData));
      Settle();
    }
    EXPECT_EQ(b_.error, "");
    if (round == 0) b_.endpoint->set_hold_fetches(false);
    Settle();
  }
  for (int i = 0; i < 6; ++i) {
    if (!a_.Send(1, 'b', kMiB - frame::kHeaderBytes, frame::Kind::kStreamData)) break;
    Settle();
  }
  EXPECT_NE(b_.error.find("too much behind"), std::string::npos) << b_.error;
}

TEST_F(LargeAbuseTest, APlaceWithoutALengthEndsTheConnection) {
  Start();
  Tamper(a_, [](frame::Place& place) { place.bytes = 0; });
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_NE(b_.error.find("place of a large message"), std::string::npos) << b_.error;
  EXPECT_EQ(b_.endpoint->large_out(), 0u);
}

// Its number says what is given back: what was not lent to this peer is not.
TEST_F(LargeAbuseTest, APlaceWithAnotherNumberEndsTheConnectionOfItsSender) {
  Start();
  Tamper(a_, [](frame::Place& place) { place.number += 5; });
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  Settle();
  EXPECT_EQ(b_.received, "1aL ");
  EXPECT_NE(a_.error.find("not lent"), std::string::npos) << a_.error;
}

TEST_F(LargeAbuseTest, ATakenForWhatWasLentToAnotherEndsTheConnection) {
  Start();
  End c;
  StartThird(&c);
  const auto buffer = a_.sessions.Reserve(a_.peer, 10000);
  ASSERT_TRUE(buffer.ok());
  frame::Header header;
  header.kind = frame::Kind::kRequest;
  header.method_id = header.call_id = 1;
  header.payload_bytes = 10000;
  std::memset(buffer->data, 'a', 10000);
  a_.sessions.Commit(a_.peer, *buffer, header);
  ASSERT_TRUE(b_.Send(buffer->large, 'x', 0, frame::Kind::kTaken));
  Settle();
  EXPECT_NE(a_.error.find("not lent"), std::string::npos) << a_.error;
  EXPECT_EQ(a_.sessions.counters().lent, 1u) << "it is not taken back from the other";
  c.endpoint->Poll();
  c.endpoint->Poll();
  EXPECT_EQ(c.received, "1aL ");
}

TEST_F(LargeAbuseTest, ATakenBeforeItsPlaceWasSentEndsTheConnection) {
  Start();
  a_.endpoint->set_slow_lending(true);  // nobody has been told its number
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  ASSERT_TRUE(b_.Send(1, 'x', 0, frame::Kind::kTaken));
  Settle();
  EXPECT_NE(a_.error.find("not lent"), std::string::npos) << a_.error;
}

// Two large messages that it lets nobody read, and small ones behind both in turn: however many wait, each costs as much.
TEST_F(LargeAbuseTest, SmallMessagesBehindTwoLargeOnesCostTheSameHoweverManyThereAre) {
  constexpr uint64_t kSmall = 2000;
  Start();
  b_.endpoint->set_hold_fetches(true);
  for (const uint32_t call : {1, 2}) ASSERT_TRUE(a_.Send(call, 'a', 10000));
  for (uint64_t i = 0; i < kSmall; ++i) {
    ASSERT_TRUE(a_.Send(1 + i % 2, 'b', 1, frame::Kind::kStreamData));
    if (i % 32 == 0) Settle();
  }
  Settle();
  EXPECT_EQ(b_.received, "");
  EXPECT_LE(b_.sessions.large_steps(), 4 * kSmall);
  b_.endpoint->LetFetch(1);
  Settle();
  EXPECT_EQ(b_.received.size(), 4 + kSmall / 2 * 3) << "those of the second, in their order";
  EXPECT_LE(b_.sessions.large_steps(), 4 * kSmall);
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(b_.received.size(), 2 * (4 + kSmall / 2 * 3));
  EXPECT_LE(b_.sessions.large_steps(), 4 * kSmall);
  ExpectNothingOut();
}

// It reads all but the first: what this side remembers is bounded by what is lent.
TEST_F(LargeAbuseTest, LargeMessageThatIsNeverTakenDoesNotMakeTheOthersDearer) {
  constexpr uint64_t kLarge = 200;
  Start();
  b_.endpoint->set_hold_fetches(true);
  ASSERT_TRUE(a_.Send(1, 'a', 10000));
  for (uint32_t i = 0; i < kLarge; ++i) {
    ASSERT_TRUE(a_.Send(2 + i, 'b', 10000)) << i;
    Settle();
    b_.endpoint->LetFetch(1);
    Settle();
    ASSERT_EQ(a_.sessions.counters().lent, 1u);
  }
  EXPECT_LE(a_.sessions.large_steps(), 4 * kLarge);
  ASSERT_TRUE(b_.Send(7, 'y', 10));
  Settle();
  EXPECT_EQ(a_.delivered, 0u) << "the first was not read";
  b_.endpoint->set_hold_fetches(false);
  Settle();
  EXPECT_EQ(a_.delivered, 1 + kLarge);
  ExpectNothingOut();
}

// A sender has so many lent at most, until it is told that they were taken: these were not.
TEST_F(LargeAbuseTest, MorePlacesThanItWasToldOfEndTheConnection) {
  Start({.credits = 200, .max_large_bytes = 1 << 20});
  // So that nothing can be said to it.
  a_.endpoint->set_withhold_credits(true);
  for (uint32_t i = 0; i < 200; ++i) ASSERT_TRUE(b_.Send(8, 'x', 1));
  Settle();
  b_.endpoint->set_fail_fetches(absl::ResourceExhaustedError("none"));
  a_.endpoint->set_tamper([](std::vector<std::byte>& message) {
    frame::Header header;
    std::memcpy(&header, message.data(), sizeof(header));
    header.flags |= frame::kFlagLarge;
    std::memcpy(message.data(), &header, sizeof(header));
    frame::Encode(frame::Place{.bytes = 100, .number = 1}, message.data() + frame::kHeaderBytes);
    return 1;
  });
  for (uint32_t i = 0; i < kMaxLent; ++i) {
    ASSERT_TRUE(a_.Send(i, 'a', frame::kPlaceBytes));
    Settle();
  }
  EXPECT_EQ(b_.error, "");
  ASSERT_TRUE(a_.Send(99, 'a', frame::kPlaceBytes));
  Settle();
  EXPECT_NE(b_.error.find("more large messages than may be"), std::string::npos) << b_.error;
}

}  // namespace large_abuse_test
}  // namespace sluice::session
