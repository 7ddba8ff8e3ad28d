// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/offers.h"

#include "gtest/gtest.h"

namespace sluice::endpoint {
namespace offers_test {

TEST(Offers, TheSameOfferIsKeptOnce) {
  Offers offers;
  const uint8_t one = offers.Take({0x15b3, 1}), other = offers.Take({0x15b3, 2});
  EXPECT_EQ(offers.Take({0x15b3, 1}), one);
  EXPECT_NE(other, one);
  EXPECT_EQ(offers.At(one).options, 1u);
  EXPECT_EQ(offers.At(other).vendor_id, 0x15b3u);
  EXPECT_EQ(offers.At(other).options, 2u);
}

TEST(Offers, NothingIsNoOffer) {
  Offers offers;
  EXPECT_EQ(offers.Take({}), Offers::kNone);
  EXPECT_EQ(offers.At(Offers::kNone).vendor_id, 0u);
  offers.Release(Offers::kNone);
}

TEST(Offers, BeyondTheBoundNoneIsKeptUntilOneIsReleased) {
  Offers offers;
  for (uint32_t i = 1; i <= Offers::kMost; ++i) ASSERT_NE(offers.Take({1, i}), Offers::kNone);
  EXPECT_EQ(offers.Take({2, 1}), Offers::kNone);
  const uint8_t twice = offers.Take({1, 7});
  offers.Release(twice);
  EXPECT_EQ(offers.Take({2, 1}), Offers::kNone) << "somebody has it still";
  offers.Release(twice);
  EXPECT_EQ(offers.Take({2, 1}), twice);
  EXPECT_EQ(offers.At(twice).vendor_id, 2u);
}

}  // namespace offers_test
}  // namespace sluice::endpoint
