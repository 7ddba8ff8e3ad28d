// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/softdc/conformance/skip.h"

#include "gtest/gtest.h"

namespace sluice::conformance {

void SkipTest(const std::string& why) {
  [&] { GTEST_SKIP() << why; }();
  // The one exception that gtest lets end a body without calling that a failure.
  throw testing::AssertionException(
      testing::TestPartResult(testing::TestPartResult::kSkip, __FILE__, __LINE__, why.c_str()));
}

}  // namespace sluice::conformance
