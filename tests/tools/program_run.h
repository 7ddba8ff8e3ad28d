// SPDX-License-Identifier: Apache-2.0
//
// Runs a program to its end, on a softdc of this test's own.
#ifndef SLUICE_TESTS_TOOLS_PROGRAM_RUN_H_
#define SLUICE_TESTS_TOOLS_PROGRAM_RUN_H_

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/child_process.h"

namespace sluice::tools {

struct ProgramRun {
  std::string output;  // standard output only
  int exit_code = -1;
};

inline ProgramRun RunProgram(const std::vector<std::string>& arguments) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1);
  auto process = ChildProcess::Start(arguments);
  EXPECT_TRUE(process.ok()) << process.status();
  if (!process.ok()) return {};
  auto output = (*process)->ReadAll(absl::Seconds(50));
  EXPECT_TRUE(output.ok()) << output.status();
  auto exit_code = (*process)->Wait(absl::Seconds(50));
  EXPECT_TRUE(exit_code.ok()) << exit_code.status();
  return {output.value_or(""), exit_code.value_or(-1)};
}

}  // namespace sluice::tools

#endif  // SLUICE_TESTS_TOOLS_PROGRAM_RUN_H_
