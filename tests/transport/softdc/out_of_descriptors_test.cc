// SPDX-License-Identifier: Apache-2.0
//
// A receiver that has no file descriptors left: newcomers are told so, those it has go on, and there is
// room again when some have left.
#include <fcntl.h>
#include <sys/mman.h>
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
#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/verbs_objects.h"

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

// Sends to the address that it is given, and says what became of that.
void NarrowSender(int down, int up) {
  DcNode node;
  DcAddress to;
  if (read(down, &to, sizeof(to)) != static_cast<ssize_t>(sizeof(to))) return;
  const rlim_t limit = OpenFiles() + kRoom;
  const rlimit files{.rlim_cur = limit, .rlim_max = limit};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) return;
  const ibv_wc_status status = SendTo(node, to);
  if (write(up, &status, sizeof(status)) < 0) return;
}

// All segments of the receiver together are more than the sender has room for.
TEST(OutOfDescriptors, SenderWithFewTakesOneSegmentAtATime) {
  constexpr size_t kBytes = 4096, kSegments = 7;
  Child child(&NarrowSender);
  DcNode node;
  std::vector<UniqueFd> files;
  std::vector<void*> mappings;
  std::vector<ibv_mr*> regions;
  for (size_t i = 0; i < kSegments; ++i) {
    files.emplace_back(memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(files.back().get(), kBytes), 0);
    ASSERT_EQ(fcntl(files.back().get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    mappings.push_back(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.back().get(), 0));
    ASSERT_NE(mappings.back(), MAP_FAILED);
    regions.push_back(RegMr(node.pd, mappings.back(), kBytes, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(regions.back(), nullptr);
  }
  child.Put(node.Address());
  EXPECT_EQ(child.Get<ibv_wc_status>(), IBV_WC_SUCCESS);
  EXPECT_EQ(node.ReceivedText(node.PollReceive()), "x");
  for (ibv_mr* region : regions) EXPECT_EQ(DeregMr(region), 0);
  for (void* mapping : mappings) munmap(mapping, kBytes);
}

}  // namespace out_of_descriptors_test
}  // namespace sluice::softdc
