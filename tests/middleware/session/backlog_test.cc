// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/backlog.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>

namespace sluice::session {
namespace backlog_test {

bool Push(Backlog& backlog, const std::string& text) {
  std::byte* at = backlog.Push(static_cast<uint32_t>(text.size()));
  if (at != nullptr) std::memcpy(at, text.data(), text.size());
  return at != nullptr;
}

std::string Pop(Backlog& backlog) {
  const auto front = backlog.Front();
  std::string text(reinterpret_cast<const char*>(front.data()), front.size());
  backlog.Pop();
  return text;
}

TEST(BacklogTest, RefusesMoreMessagesThanItsBound) {
  Backlog backlog(2, 1000);
  EXPECT_TRUE(Push(backlog, "a"));
  EXPECT_TRUE(Push(backlog, "b"));
  EXPECT_FALSE(Push(backlog, "c"));
  EXPECT_EQ(Pop(backlog), "a");
  EXPECT_TRUE(Push(backlog, "c"));
  EXPECT_EQ(Pop(backlog), "b");
  EXPECT_EQ(Pop(backlog), "c");
  EXPECT_TRUE(backlog.empty());
}

TEST(BacklogTest, RefusesMoreBytesThanItsBound) {
  Backlog backlog(100, 10);
  EXPECT_TRUE(Push(backlog, "12345678"));
  EXPECT_FALSE(Push(backlog, "123"));
  EXPECT_TRUE(Push(backlog, "12"));
  EXPECT_EQ(backlog.size_bytes(), 10u);
  Pop(backlog);
  EXPECT_EQ(backlog.size_bytes(), 2u);
}

TEST(BacklogTest, RandomPushesAndPopsKeepOrder) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Backlog backlog(37, 2000);
    std::deque<std::string> model;
    uint64_t bytes = 0;
    for (int step = 0; step < 2000; ++step) {
      if (random() % 2 == 0) {
        const std::string text(1 + random() % 120, static_cast<char>('a' + random() % 26));
        const bool fits = model.size() < 37 && bytes + text.size() <= 2000;
        ASSERT_EQ(Push(backlog, text), fits);
        if (!fits) continue;
        model.push_back(text);
        bytes += text.size();
      } else if (!model.empty()) {
        ASSERT_EQ(Pop(backlog), model.front());
        bytes -= model.front().size();
        model.pop_front();
      }
      ASSERT_EQ(backlog.size(), model.size());
      ASSERT_EQ(backlog.size_bytes(), bytes);
    }
  }
}

}  // namespace backlog_test
}  // namespace sluice::session
