// SPDX-License-Identifier: Apache-2.0
#include "tools/capability_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::tools {
namespace capability_use_test {

using ::testing::HasSubstr;
using verbs::CapabilityReport;
using verbs::Feature;

CapabilityReport All(bool on) {
  CapabilityReport report;
  for (int i = 0; i < verbs::kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    report.Set(feature, on, std::string("because of ") + std::string(verbs::Name(feature)));
  }
  return report;
}

TEST(CapabilitiesInUseTest, DeviceThatCanDoEverything) {
  const auto uses = CapabilitiesInUse(All(true));
  EXPECT_TRUE(uses[0].in_use);
  EXPECT_TRUE(uses[1].in_use);
  EXPECT_TRUE(uses[2].in_use);
  EXPECT_TRUE(uses[3].in_use);
  EXPECT_TRUE(uses[4].in_use);
}

TEST(CapabilitiesInUseTest, DeviceThatCanDoNothing) {
  for (const CapabilityUse& use : CapabilitiesInUse(All(false))) {
    EXPECT_FALSE(use.in_use) << use.name;
    EXPECT_THAT(use.why, HasSubstr("because of")) << use.name;
    EXPECT_FALSE(use.fallback.empty()) << use.name;
  }
}

TEST(CapabilitiesInUseTest, StreamsThatCannotBeResetDoNotIsolate) {
  CapabilityReport report = All(true);
  report.Set(Feature::kStreamReset, false, "max_log_num_errored is 0");
  const CapabilityUse use = CapabilitiesInUse(report)[0];
  EXPECT_FALSE(use.in_use);
  EXPECT_THAT(use.why, HasSubstr("max_log_num_errored is 0"));
}

TEST(CapabilityTextTest, SaysHowManyAndWhatInstead) {
  const std::string text = CapabilityText(All(true));
  EXPECT_THAT(text, HasSubstr("5 of 5 in use"));
  EXPECT_THAT(CapabilityText(All(false)),
              HasSubstr("instead: signatures are checked, by the device or the CPU"));
}

}  // namespace capability_use_test
}  // namespace sluice::tools
