// SPDX-License-Identifier: Apache-2.0
#include "tools/child_process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <string>

namespace sluice::tools {
namespace child_process_test {

constexpr absl::Duration kLong = absl::Seconds(30);

std::unique_ptr<ChildProcess> Shell(const std::string& script) {
  auto process = ChildProcess::Start({"/bin/sh", "-c", script});
  EXPECT_TRUE(process.ok()) << process.status();
  return process.ok() ? *std::move(process) : nullptr;
}

TEST(ChildProcessTest, LinesThenTheEnd) {
  auto process = Shell("echo one; echo; printf three");
  EXPECT_EQ(process->ReadLine(kLong).value_or("?"), "one");
  EXPECT_EQ(process->ReadLine(kLong).value_or("?"), "");
  EXPECT_EQ(process->ReadLine(kLong).value_or("?"), "three");
  EXPECT_EQ(process->ReadLine(kLong).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(process->Wait(kLong).value_or(-1), 0);
}

TEST(ChildProcessTest, ExitCodeAndSignal) {
  EXPECT_EQ(Shell("exit 7")->Wait(kLong).value_or(-1), 7);
  EXPECT_EQ(Shell("kill -KILL $$")->Wait(kLong).value_or(-1), 128 + SIGKILL);
}

TEST(ChildProcessTest, SilenceEndsInTime) {
  auto process = Shell("read forever < /dev/zero");
  EXPECT_EQ(process->ReadLine(absl::Milliseconds(10)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(process->Wait(absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(kLong).value_or(-1), 128 + SIGTERM);
}

TEST(ChildProcessTest, StoppedChildStandsStillWhenSignalReturns) {
  auto process = Shell("while :; do :; done");
  process->Signal(SIGSTOP);
  std::ifstream file("/proc/" + std::to_string(process->pid()) + "/stat");
  std::string stat;
  std::getline(file, stat);
  EXPECT_NE(stat.find(") T "), std::string::npos) << stat;
  process->Signal(SIGCONT);
  process->Signal(SIGTERM);
  EXPECT_EQ(process->Wait(kLong).value_or(-1), 128 + SIGTERM);
}

TEST(ChildProcessTest, StopOfAChildThatHasEndedReturns) {
  auto process = Shell("exit 3");
  EXPECT_EQ(process->ReadAll(kLong).value_or("?"), "");
  process->Signal(SIGSTOP);
  EXPECT_EQ(process->Wait(kLong).value_or(-1), 3);
}

TEST(ChildProcessTest, DestructorEndsAChildThatRuns) {
  auto process = Shell("echo here; read forever < /dev/zero");
  ASSERT_TRUE(process->ReadLine(kLong).ok());
  const pid_t pid = process->pid();
  process.reset();
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST(ChildProcessTest, ProgramThatIsNotThere) {
  EXPECT_EQ(ChildProcess::Start({"/no/such/program"}).status().code(), absl::StatusCode::kNotFound);
}

TEST(ListeningAddressTest, SkipsOtherLines) {
  auto process = Shell("echo device x; echo listening on 127.0.0.1:99; echo more");
  EXPECT_EQ(ListeningAddress(*process, kLong).value_or("?"), "127.0.0.1:99");
}

TEST(ListeningAddressTest, ServerThatEndsIsAnError) {
  auto process = Shell("exit 1");
  EXPECT_EQ(ListeningAddress(*process, kLong).status().code(), absl::StatusCode::kOutOfRange);
}

}  // namespace child_process_test
}  // namespace sluice::tools
