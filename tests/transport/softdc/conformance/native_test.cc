// SPDX-License-Identifier: Apache-2.0
//
// Says once why the suite does not run on a real device, where it does not.
#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

TEST(NativeDevice, RunsTheSuiteWhereThereIsOne) {
  if (!WhyNoNativeBed().empty()) GTEST_SKIP() << "native: " << WhyNoNativeBed();
  EXPECT_FALSE(MakeBed("native")->IsSoftware());
}

}  // namespace
}  // namespace sluice::conformance
