// SPDX-License-Identifier: Apache-2.0
#include "middleware/frame/method_id.h"

#include <gtest/gtest.h>

namespace sluice::frame {
namespace method_id_test {

// Golden: these numbers are on the wire. The second is FNV's own published test vector.
TEST(MethodIdTest, GoldenValues) {
  EXPECT_EQ(MethodId(""), 0xcbf29ce484222325u);
  EXPECT_EQ(MethodId("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(MethodId("/sluice.examples.echo.Echo/Say"), 0x7991615a62f0e3d2u);
}

TEST(MethodIdTest, NamesThatDifferInOneLetterDiffer) {
  EXPECT_NE(MethodId("/a.B/C"), MethodId("/a.B/c"));
  EXPECT_NE(MethodId("/a.B/C"), MethodId("/a.C/B"));
}

}  // namespace method_id_test
}  // namespace sluice::frame
