// SPDX-License-Identifier: Apache-2.0
//
// A program that ends without closing anything.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace exit_test {

// Everything stands open when main would return: objects, posted receives, registered memory.
void ReceiverThatExits(int down, int up) {
  auto* node = new DcNode;
  const DcAddress address = node->Address();
  if (write(up, &address, sizeof(address)) < 0) return;
  char go;
  if (read(down, &go, 1) == 1) std::exit(0);
}

TEST(Exit, WithoutCloseEndsTheProcessAndFreesItsNumbersForTheNext) {
  Child child(&ReceiverThatExits), next(&ReceiverThatExits);
  const DcAddress gone = child.Get<DcAddress>(), alive = next.Get<DcAddress>();
  DcNode a;
  ASSERT_EQ(a.Send(gone, "x", 1, 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  child.Put('x');
  int status = 0;
  ASSERT_EQ(waitpid(child.pid, &status, 0), child.pid);
  child.pid = -1;
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  ibv_wc wc{};
  for (uint64_t i = 0; i < 1'000'000 && wc.status == IBV_WC_SUCCESS; ++i) {
    ASSERT_EQ(a.Send(gone, "x", 2, 1), 0);
    wc = a.PollSend();
  }
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(a.Send(alive, "x", 3, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  DcNode heir;
  EXPECT_EQ(heir.Address().dctn / 256, gone.dctn / 256);
}

}  // namespace exit_test
}  // namespace sluice::softdc
