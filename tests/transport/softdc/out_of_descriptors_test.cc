// SPDX-License-Identifier: Apache-2.0
//
// A receiver that has no file descriptors left: newcomers are told so, those it has go on, and there is
// room again when some have left.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/loop.h"

namespace sluice::softdc {
namespace out_of_descriptors_test {

constexpr int kRoom = 4;  // senders and some

int OpenFiles() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                        std::filesystem::directory_iterator()));
}

// Receives, and says for each byte it is sent how often its firmware thread has woken up.
void NarrowReceiver(int down, int up) {
  DcNode node;
  const rlim_t limit = OpenFiles() + kRoom;
  const rlimit files{.rlim_cur = limit, .rlim_max = limit};
  const DcAddress address = node.Address();
  if (setrlimit(RLIMIT_NOFILE, &files) != 0 || write(up, &address, sizeof(address)) < 0) return;
  fcntl(down, F_SETFL, O_NONBLOCK);
  for (;;) {
    ibv_wc wc;
    if (ibv_poll_cq(node.receive_cq, 1, &wc) > 0) node.PostReceives(1);
    char byte;
    if (read(down, &byte, 1) != 1) continue;
    const uint64_t wakeups = Loop::Get().wakeups();
    if (write(up, &wakeups, sizeof(wakeups)) < 0) return;
  }
}

ibv_wc_status SendTo(DcNode& node, const DcAddress& to) {
  EXPECT_EQ(node.Send(to, "x", 1, 1), 0);
  return node.PollSend().status;
}

TEST(OutOfDescriptors, NewcomersAreToldOthersGoOnAndThereIsRoomAgain) {
  Child child(&NarrowReceiver);
  const auto address = child.Get<DcAddress>();
  std::vector<std::unique_ptr<DcNode>> senders;
  testing::internal::CaptureStderr();
  ibv_wc_status status = IBV_WC_SUCCESS;
  while (status == IBV_WC_SUCCESS) {
    senders.push_back(std::make_unique<DcNode>());
    status = SendTo(*senders.back(), address);
    ASSERT_LT(senders.size(), 100u);
  }
  EXPECT_EQ(status, IBV_WC_RETRY_EXC_ERR);
  const std::string reason = testing::internal::GetCapturedStderr();
  EXPECT_NE(reason.find(std::to_string(child.pid)), std::string::npos) << reason;
  EXPECT_NE(reason.find("file descriptors"), std::string::npos) << reason;
  ASSERT_GT(senders.size(), 1u);
  // Those that it has go on, and it does not turn round and round meanwhile.
  child.Put('w');
  const auto wakeups = child.Get<uint64_t>();
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(SendTo(*senders.front(), address), IBV_WC_SUCCESS);
  child.Put('w');
  EXPECT_LT(child.Get<uint64_t>() - wakeups, 2'000u);
  // One leaves, and the newcomer gets its place.
  senders.erase(senders.begin());
  senders.back()->Recover();
  while (SendTo(*senders.back(), address) != IBV_WC_SUCCESS) senders.back()->Recover();
}

}  // namespace out_of_descriptors_test
}  // namespace sluice::softdc
