// SPDX-License-Identifier: Apache-2.0
//
// The example's programs as processes, on a softdc of their own.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::examples::log_tail {
namespace {

using tools::ChildProcess;

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

class LogTailTest : public ::testing::Test {
 protected:
  void SetUp() override { flags_ = "--device=softdc0 --server=" + server_.address; }
  std::unique_ptr<ChildProcess> Shell(const std::string& command) {
    return testing_support::StartProgram({"/bin/sh", "-c", command + " " + flags_ + " 2>&1"});
  }
  // What it says, once it has ended.
  std::string Said(const std::string& command, int code = 0) {
    return testing_support::OutputOf(Shell(command).get(), code);
  }

  testing_support::ServerProgram server_{{"examples/log_tail/log_server"}};
  std::string flags_;
};

TEST_F(LogTailTest, WhatIsAppendedIsFollowed) {
  EXPECT_EQ(Said("printf 'one\\ntwo\\nthree\\n' | examples/log_tail/log_append"), "3 lines\n");
  EXPECT_EQ(Said("examples/log_tail/log_tail --last=2 --lines=2"), "two\nthree\n");
  const auto follower = Shell("examples/log_tail/log_tail --last=1 --lines=3 --containing=t");
  const auto first = follower->ReadLine(kLong);  // it follows now
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(*first, "three");
  EXPECT_EQ(Said("printf 'four\\nten\\ntwelve\\n' | examples/log_tail/log_append"), "3 lines\n");
  const auto rest = follower->ReadAll(kLong);
  ASSERT_TRUE(rest.ok()) << rest.status();
  EXPECT_EQ(*rest, "ten\ntwelve\n");
  EXPECT_EQ(follower->Wait(kLong).value_or(-1), 0);
}

TEST_F(LogTailTest, MoreLinesThanAnyWindowGoThrough) {
  EXPECT_EQ(Said("seq 5000 | examples/log_tail/log_append"), "5000 lines\n");
  const std::string said = Said("examples/log_tail/log_tail --last=5000 --lines=5000");
  EXPECT_EQ(said.substr(said.size() - 10), "4999\n5000\n");
}

TEST_F(LogTailTest, ServerThatEndsSaysSoToThoseWhoFollow) {
  EXPECT_EQ(Said("echo one | examples/log_tail/log_append"), "1 lines\n");
  const auto follower = Shell("examples/log_tail/log_tail");
  ASSERT_EQ(follower->ReadLine(kLong).value_or(""), "one");
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(kLong).value_or(-1), 0);
  const auto said = follower->ReadAll(kLong);
  EXPECT_NE(said.value_or("").find("UNAVAILABLE"), std::string::npos) << said.value_or("");
  EXPECT_EQ(follower->Wait(kLong).value_or(-1), 1);
}

}  // namespace
}  // namespace sluice::examples::log_tail
