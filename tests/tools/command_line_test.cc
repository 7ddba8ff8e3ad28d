// SPDX-License-Identifier: Apache-2.0
#include "tools/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::tools {
namespace command_line_test {

using ::testing::HasSubstr;

struct Parsed {
  std::string device = "auto";
  uint32_t window = 1;
  absl::Duration duration = absl::Seconds(5);
  bool check = false;
  absl::Status status;
  bool help = false;
};

Parsed Parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  CommandLine line("usage: it");
  line.Add("device", &parsed.device, "a device");
  line.Add("window", &parsed.window, 1, 100, "a window");
  line.Add("duration", &parsed.duration, absl::Milliseconds(1), absl::Hours(1), "a time");
  line.Add("check", &parsed.check, "a switch");
  parsed.status = line.Parse(arguments);
  parsed.help = line.help();
  return parsed;
}

std::string MessageOf(const std::vector<std::string>& arguments) {
  const Parsed parsed = Parse(arguments);
  EXPECT_EQ(parsed.status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(parsed.status.message());
}

TEST(CommandLineTest, ValuesWithEqualsAndWithSpace) {
  const Parsed parsed = Parse({"--device=mlx5_0", "--window", "32", "--duration=300ms"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.device, "mlx5_0");
  EXPECT_EQ(parsed.window, 32u);
  EXPECT_EQ(parsed.duration, absl::Milliseconds(300));
}

TEST(CommandLineTest, SwitchNeedsNoValue) {
  const Parsed parsed = Parse({"--check", "--device=mlx5_0"});
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_TRUE(parsed.check);
  EXPECT_EQ(parsed.device, "mlx5_0");
  EXPECT_TRUE(Parse({"--check=true"}).check);
  EXPECT_FALSE(Parse({"--check", "--check=false"}).check);
  EXPECT_THAT(MessageOf({"--check=maybe"}), HasSubstr("true and false"));
}

TEST(CommandLineTest, DefaultsStayWithoutArguments) {
  const Parsed parsed = Parse({});
  ASSERT_TRUE(parsed.status.ok());
  EXPECT_EQ(parsed.device, "auto");
  EXPECT_EQ(parsed.window, 1u);
  EXPECT_EQ(parsed.duration, absl::Seconds(5));
}

TEST(CommandLineTest, BareNumberIsSeconds) {
  EXPECT_EQ(Parse({"--duration=2.5"}).duration, absl::Milliseconds(2500));
}

TEST(CommandLineTest, MisspeltNameGetsAHint) {
  EXPECT_THAT(MessageOf({"--windw=3"}), HasSubstr("did you mean --window?"));
  EXPECT_THAT(MessageOf({"--xyzzyxyzzy=3"}), HasSubstr("there is nothing like it"));
}

TEST(CommandLineTest, WrongValueSaysWhatIsAllowed) {
  EXPECT_THAT(MessageOf({"--window=101"}), HasSubstr("1 to 100"));
  EXPECT_THAT(MessageOf({"--window=-1"}), HasSubstr("1 to 100"));
  EXPECT_THAT(MessageOf({"--window=3x"}), HasSubstr("1 to 100"));
  EXPECT_THAT(MessageOf({"--duration=soon"}), HasSubstr("1ms to 1h"));
  EXPECT_THAT(MessageOf({"--device="}), HasSubstr("empty"));
}

TEST(CommandLineTest, MissingValueAndStrayWord) {
  EXPECT_THAT(MessageOf({"--window"}), HasSubstr("has no value"));
  EXPECT_THAT(MessageOf({"window"}), HasSubstr("options begin with --"));
}

TEST(CommandLineTest, HelpWinsOverWhatFollows) {
  const Parsed parsed = Parse({"--help", "--nonsense"});
  EXPECT_TRUE(parsed.status.ok());
  EXPECT_TRUE(parsed.help);
}

}  // namespace command_line_test
}  // namespace sluice::tools
