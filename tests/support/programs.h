// SPDX-License-Identifier: Apache-2.0
//
// StartProgram(), ServerProgram, OutputOf(): programs of the tree as processes, for tests. A call that fails fails the test.
#ifndef SLUICE_TESTS_SUPPORT_PROGRAMS_H_
#define SLUICE_TESTS_SUPPORT_PROGRAMS_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tools/child_process.h"

namespace sluice::testing_support {

inline constexpr absl::Duration kProgramTimeout = absl::Seconds(50);  // a hang

// Null if the program cannot be started.
inline std::unique_ptr<tools::ChildProcess> StartProgram(std::vector<std::string> arguments) {
  auto child = tools::ChildProcess::Start(std::move(arguments));
  EXPECT_TRUE(child.ok()) << child.status();
  return child.ok() ? *std::move(child) : nullptr;
}

// Waits until the program has ended with `code`. Returns its standard output.
inline std::string OutputOf(tools::ChildProcess* child, int code = 0) {
  if (child == nullptr) return "";
  const auto output = child->ReadAll(kProgramTimeout);
  EXPECT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(child->Wait(kProgramTimeout).value_or(-1), code) << output.value_or("");
  return output.value_or("");
}

// A server on softdc, on a free port of the loopback address.
struct ServerProgram {
  ServerProgram() = default;
  explicit ServerProgram(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--listen=127.0.0.1:0", "--device=softdc0"});
    process = StartProgram(std::move(arguments));
    if (process == nullptr) return;
    auto listening = tools::ListeningAddress(*process, kProgramTimeout);
    EXPECT_TRUE(listening.ok()) << listening.status();
    address = listening.value_or("");
  }

  std::unique_ptr<tools::ChildProcess> process;
  std::string address;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_SUPPORT_PROGRAMS_H_
