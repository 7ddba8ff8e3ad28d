// SPDX-License-Identifier: Apache-2.0
//
// InChild(): runs checks in a forked child.
#ifndef SLUICE_TESTS_SUPPORT_IN_CHILD_H_
#define SLUICE_TESTS_SUPPORT_IN_CHILD_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace sluice::testing_support {

// A failed check fails the test; a child that hangs ends with SIGALRM.
inline void InChild(const std::function<void()>& checks) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);
    checks();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_IN_CHILD_H_
