// SPDX-License-Identifier: Apache-2.0
#include "middleware/session/outbox.h"

#include <gtest/gtest.h>

#include <vector>

namespace sluice::session {
namespace outbox_test {

std::vector<uint32_t> Contents(const Outbox& outbox, const Links& links) {
  std::vector<uint32_t> slots;
  outbox.ForEach(links, [&](uint32_t slot) { slots.push_back(slot); });
  return slots;
}

TEST(OutboxTest, TwoPeersShareTheLinks) {
  Links links;
  Outbox a;
  Outbox b;
  for (uint32_t slot = 0; slot < 6; ++slot) (slot % 2 == 0 ? a : b).PushBack(links, slot);
  EXPECT_EQ(Contents(a, links), (std::vector<uint32_t>{0, 2, 4}));
  EXPECT_EQ(Contents(b, links), (std::vector<uint32_t>{1, 3, 5}));
  EXPECT_EQ(a.PopFront(links), 0u);
  a.PushBack(links, 0);
  EXPECT_EQ(Contents(a, links), (std::vector<uint32_t>{2, 4, 0}));
}

TEST(OutboxTest, EmptyAgainAndUsedAgain) {
  Links links;
  Outbox outbox;
  for (int round = 0; round < 3; ++round) {
    EXPECT_TRUE(Contents(outbox, links).empty());
    outbox.PushBack(links, 9);
    EXPECT_EQ(outbox.size(), 1u);
    EXPECT_EQ(outbox.PopFront(links), 9u);
  }
}

}  // namespace outbox_test
}  // namespace sluice::session
