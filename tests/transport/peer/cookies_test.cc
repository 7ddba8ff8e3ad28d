// SPDX-License-Identifier: Apache-2.0
#include "transport/peer/cookies.h"

#include "gtest/gtest.h"

namespace sluice::peer {
namespace cookies_test {

constexpr int64_t kBucketNs = Cookies::kBucketNs;

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

}  // namespace cookies_test
}  // namespace sluice::peer
