// SPDX-License-Identifier: Apache-2.0
//
// Idle means no CPU: neither a server with a client connected, nor that client.
#include <poll.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/examples/echo/echo_fixture.h"

namespace sluice::examples::echo {
namespace idle_test {

constexpr int kSettleMs = 300;  // watch periods and the last timers of the connection
constexpr int kIntervalMs = 1500;
constexpr int kIntervals = 10;
constexpr int64_t kAllowedTicks = 1;  // of 10 ms: what reading the figures costs

// utime + stime of all threads (man proc_pid_stat).
int64_t CpuTicks(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  std::getline(file, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  int64_t user = -1;
  int64_t system = -1;
  fields >> user >> system;
  return user + system;
}

// Nothing ever comes through the pipe: this thread sleeps in the kernel, as a user's would.
void WaitForNothing(int timeout_ms) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  pollfd entry{fds[0], POLLIN, 0};
  EXPECT_EQ(poll(&entry, 1, timeout_ms), 0);
  close(fds[0]);
  close(fds[1]);
}

TEST_F(EchoTest, IdleServerAndIdleConnectedClientUseNoCpu) {
  StartServer();
  auto channel = MustConnect();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Say(channel, "busy once").ok());
  // On a machine with much else to do the threads may not have come to rest so far: then the next interval counts.
  int64_t server_ticks = kAllowedTicks + 1, client_ticks = kAllowedTicks + 1;
  for (int i = 0; i < kIntervals && std::max(server_ticks, client_ticks) > kAllowedTicks; ++i) {
    WaitForNothing(kSettleMs);
    const int64_t server_before = CpuTicks(server_->pid());
    const int64_t client_before = CpuTicks(getpid());
    ASSERT_GE(server_before, 0);
    WaitForNothing(kIntervalMs);
    server_ticks = CpuTicks(server_->pid()) - server_before;
    client_ticks = CpuTicks(getpid()) - client_before;
  }
  EXPECT_LE(server_ticks, kAllowedTicks);
  EXPECT_LE(client_ticks, kAllowedTicks);

  EXPECT_TRUE(Say(channel, "awake again").ok());
}

}  // namespace idle_test
}  // namespace sluice::examples::echo
