// SPDX-License-Identifier: Apache-2.0
//
// An owner that stands still (SIGSTOP) while others want something of its memory.
#include "transport/softdc/shm/bounce.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <vector>

namespace sluice::softdc::shm {
namespace bounce_test {

constexpr uint64_t kContextId = 7;
constexpr uint32_t kIndex = 1, kKey = kIndex << 8 | 3;

// At the same address in both processes. Of the owner's the test sees what the owner says.
uint64_t g_word = 0;

// Serves g_word, until it is killed. Forked before this process has any thread.
pid_t StartOwner(int* ready) {
  int up[2];
  EXPECT_EQ(pipe(up), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    std::vector<MemoryRegionEntry> regions(kMaxMemoryRegions);
    regions[kIndex].address = reinterpret_cast<uint64_t>(&g_word);
    regions[kIndex].length_bytes = sizeof(g_word);
    regions[kIndex].key.store(kKey);
    const BounceServer server(kContextId, regions.data());
    if (write(up[1], "r", 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(up[1]);
  *ready = up[0];
  return pid;
}

void WaitUntilReady(BounceClient& client) {
  while (!client.Ready()) sched_yield();
}

TEST(BounceTest, AtomicOfAnOwnerThatStoodStillRunsOnce) {
  int ready = -1;
  const pid_t owner = StartOwner(&ready);
  char byte;
  ASSERT_EQ(read(ready, &byte, 1), 1);
  const std::unique_ptr<BounceClient> client = BounceClient::Connect(kContextId);
  ASSERT_NE(client, nullptr);
  WaitUntilReady(*client);
  const WordChange add{.compares = 0, .compare_add = 1, .swap = 0};
  const auto address = reinterpret_cast<uint64_t>(&g_word);
  uint64_t before = 99;
  ASSERT_EQ(client->Change(kKey, address, add, &before), 0);
  EXPECT_EQ(before, 0u);

  kill(owner, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(owner, &status, WUNTRACED), owner);
  EXPECT_EQ(client->Change(kKey, address, add, &before), EAGAIN) << "taken back, never to run";
  EXPECT_FALSE(client->Ready()) << "nothing more is asked, so nothing more is waited for";
  kill(owner, SIGCONT);
  WaitUntilReady(*client);
  // The second try is the only one.
  ASSERT_EQ(client->Change(kKey, address, add, &before), 0);
  EXPECT_EQ(before, 1u);

  kill(owner, SIGKILL);
  waitpid(owner, nullptr, 0);
  EXPECT_NE(client->Change(kKey, address, add, &before), 0);
  close(ready);
}

}  // namespace bounce_test
}  // namespace sluice::softdc::shm
