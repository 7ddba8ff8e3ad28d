// SPDX-License-Identifier: Apache-2.0
//
// A program that forks while it has the device open.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc {
namespace fork_test {

TEST(Fork, ParentGoesOnAndTheChildOpensADeviceOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a process with threads must not fork there";
#endif
  DcNode a, b;
  ASSERT_EQ(a.Send(b.Address(), "before", 1, 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "before");
  Child child(&Receiver);
  const DcAddress in_child = child.Get<DcAddress>();
  EXPECT_NE(in_child.dctn, b.Address().dctn);
  ASSERT_EQ(a.Send(in_child, "to the child", 2, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  ASSERT_EQ(a.Send(b.Address(), "beside it", 3, 1), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(b.ReceivedText(b.PollReceive()), "beside it");
  // What the child inherited dies with it without anybody noticing.
  child.Kill();
  ASSERT_EQ(b.Send(a.Address(), "after", 4, 1), 0);
  EXPECT_EQ(b.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(a.ReceivedText(a.PollReceive()), "after");
}

int ListeningSockets() {
  int found = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t size = sizeof(listens);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0) ++found;
  }
  return found;
}

// Else the names of its numbers would stay taken after the parent's death, and senders to them wait for the child.
TEST(Fork, TheChildKeepsNoSocketOfNumbersThatWereJustAllocated) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a process with threads must not fork there";
#endif
  DcNode first;
  const int before = ListeningSockets();
  std::promise<void> go_on;
  ASSERT_TRUE(Loop::Get().Run([wait = go_on.get_future().share()] { wait.wait(); }));
  DcNode second;
  EXPECT_GT(ListeningSockets(), before);
  const pid_t child = fork();
  if (child == 0) _exit(ListeningSockets());
  go_on.set_value();
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace fork_test
}  // namespace sluice::softdc
