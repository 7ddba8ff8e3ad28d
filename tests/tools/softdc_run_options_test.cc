// SPDX-License-Identifier: Apache-2.0
#include "tools/softdc_run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::tools {
namespace softdc_run_options_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::vector<std::string>& arguments) {
  const auto options = ParseSoftdcRunOptions(arguments);
  return options.ok() ? "accepted" : std::string(options.status().message());
}

TEST(ParseSoftdcRunOptionsTest, ProgramAndItsArgumentsAreLeftAlone) {
  const auto options = ParseSoftdcRunOptions({"ib_send_bw", "--domain", "x", "--", "-c", "DC"});
  ASSERT_TRUE(options.ok());
  EXPECT_THAT(options->program, ElementsAre("ib_send_bw", "--domain", "x", "--", "-c", "DC"));
  EXPECT_EQ(options->domain, "");
}

TEST(ParseSoftdcRunOptionsTest, OwnOptionsInBothForms) {
  const auto options =
      ParseSoftdcRunOptions({"--domain", "blue", "--config=/etc/nic", "--", "-odd-name", "a"});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->domain, "blue");
  EXPECT_EQ(options->config_file, "/etc/nic");
  EXPECT_THAT(options->program, ElementsAre("-odd-name", "a"));
}

TEST(ParseSoftdcRunOptionsTest, HelpNeedsNoProgram) {
  const auto options = ParseSoftdcRunOptions({"--help"});
  ASSERT_TRUE(options.ok());
  EXPECT_TRUE(options->help);
}

TEST(ParseSoftdcRunOptionsTest, BadInputSaysWhatIsWrong) {
  EXPECT_THAT(Refusal({}), HasSubstr("no program"));
  EXPECT_THAT(Refusal({"--domain", "x"}), HasSubstr("no program"));
  EXPECT_THAT(Refusal({"--"}), HasSubstr("no program"));
  EXPECT_THAT(Refusal({"--domain"}), HasSubstr("--domain needs a value"));
  EXPECT_THAT(Refusal({"--config=", "ls"}), HasSubstr("--config needs a value"));
  EXPECT_THAT(Refusal({"--dom", "x", "ls"}), HasSubstr("no option --dom"));
}

}  // namespace softdc_run_options_test
}  // namespace sluice::tools
