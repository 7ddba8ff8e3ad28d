// SPDX-License-Identifier: Apache-2.0
//
// The tutorial's program says what the page says.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tools/child_process.h"

namespace sluice::examples::tutorial {
namespace {

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

TEST(TutorialTest, SaysWhatThePageSays) {
  auto program = tools::ChildProcess::Start({"examples/tutorial/tutorial", "softdc0"});
  ASSERT_TRUE(program.ok()) << program.status();
  const auto said = (*program)->ReadAll(kLong);
  ASSERT_TRUE(said.ok()) << said.status();
  EXPECT_EQ((*program)->Wait(kLong).value_or(-1), 0);
  const std::vector<std::string> lines = absl::StrSplit(*said, '\n');
  const std::vector<std::string> begin = {"ACME is at 1042",
                                          "an error: NOT_FOUND: nobody trades NOSUCH",
                                          "INIT is at 7",
                                          "INIT is at 8",
                                          "INIT is at 9",
                                          "a deadline: DEADLINE_EXCEEDED: ",
                                          "a stop: CANCELLED: ",
                                          "afterwards: UNAVAILABLE: ",
                                          ""};
  ASSERT_EQ(lines.size(), begin.size()) << *said;
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with(begin[i])) << lines[i];
}

}  // namespace
}  // namespace sluice::examples::tutorial
