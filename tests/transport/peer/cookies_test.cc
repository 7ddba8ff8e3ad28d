// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/cookies.h"

#include "gtest/gtest.h"

namespace sluice::peer {
namespace {

constexpr int64_t kBucketNs = Cookies::kBucketNs;

Mac MacNumber(uint32_t number) {
  Mac mac = {};
  for (size_t i = 0; i < sizeof(number); ++i) mac[i] = static_cast<std::byte>(number >> (8 * i));
  return mac;
}

TEST(Cookies, GoodForItsSourceInItsBucketAndTheNext) {
  const Cookies cookies(KeyFromText("seed"));
  const Cookie cookie = cookies.For("192.0.2.1", 10 * kBucketNs);
  EXPECT_TRUE(cookies.Good(cookie, "192.0.2.1", 10 * kBucketNs));
  EXPECT_TRUE(cookies.Good(cookie, "192.0.2.1", 12 * kBucketNs - 1));
  EXPECT_FALSE(cookies.Good(cookie, "192.0.2.1", 12 * kBucketNs));
  EXPECT_FALSE(cookies.Good(cookie, "192.0.2.1", 9 * kBucketNs)) << "nobody has it yet";
  EXPECT_FALSE(cookies.Good(cookie, "192.0.2.2", 10 * kBucketNs));
}

TEST(Cookies, EveryWrongBitIsFound) {
  const Cookies cookies(KeyFromText("seed"));
  const Cookie cookie = cookies.For("192.0.2.1", 0);
  for (size_t bit = 0; bit < 8 * kCookieBytes; ++bit) {
    Cookie wrong = cookie;
    wrong[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(cookies.Good(wrong, "192.0.2.1", 0)) << bit;
  }
}

TEST(Cookies, ThoseWithTheSameSeedTakeEachOthersAndNobodyElses) {
  const Cookies one(KeyFromText("seed")), same(KeyFromText("seed")), other(KeyFromText("other"));
  const Cookie cookie = one.For("192.0.2.1", 0);
  EXPECT_TRUE(same.Good(cookie, "192.0.2.1", 0));
  EXPECT_FALSE(other.Good(cookie, "192.0.2.1", 0));
}

TEST(Cookies, AHelloCountsOnceWhileItsCookieIsGood) {
  Cookies cookies(KeyFromText("seed"));
  EXPECT_TRUE(cookies.Use(MacNumber(1), 10 * kBucketNs));
  EXPECT_FALSE(cookies.Use(MacNumber(1), 10 * kBucketNs));
  EXPECT_TRUE(cookies.Use(MacNumber(2), 11 * kBucketNs));
  EXPECT_FALSE(cookies.Use(MacNumber(1), 11 * kBucketNs));
  EXPECT_FALSE(cookies.Use(MacNumber(2), 12 * kBucketNs));
  EXPECT_TRUE(cookies.Use(MacNumber(1), 12 * kBucketNs)) << "its cookie is good no more";
}

TEST(Cookies, UsedOnesAreBoundedAndNewcomersAreStillTaken) {
  Cookies cookies(KeyFromText("seed"));
  for (uint32_t i = 0; i < Cookies::kMostUsed + 10; ++i) {
    ASSERT_TRUE(cookies.Use(MacNumber(i), 0)) << i;
  }
  EXPECT_FALSE(cookies.Use(MacNumber(0), 0));
}

}  // namespace
}  // namespace sluice::peer
