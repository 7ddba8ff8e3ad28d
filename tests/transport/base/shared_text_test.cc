// SPDX-License-Identifier: Apache-2.0
#include "transport/base/shared_text.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::base {
namespace shared_text_test {

TEST(SharedText, CopiesAreTheSameText) {
  SharedText text(std::string("10.0.0.1:7471"));
  SharedText copy = text;
  EXPECT_EQ(copy.view().data(), text.view().data());
  text = {};
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(copy.view(), "10.0.0.1:7471");
  EXPECT_EQ(copy.str(), "10.0.0.1:7471");
}

TEST(SharedText, AssignedToItselfAndMovedKeepsIt) {
  SharedText text("peer");
  text = *&text;
  EXPECT_EQ(text.view(), "peer");
  SharedText other = std::move(text);
  EXPECT_EQ(other.view(), "peer");
  other = "another";
  EXPECT_EQ(other.view(), "another");
}

TEST(SharedText, EmptyOneAllocatesNothing) {
  EXPECT_TRUE(SharedText("").empty());
  EXPECT_EQ(SharedText().view(), "");
}

}  // namespace shared_text_test
}  // namespace sluice::base
