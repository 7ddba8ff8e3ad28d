// SPDX-License-Identifier: Apache-2.0
//
// Receivers are killed, or go, one after the other: what each leaves in whoever sent to it.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace dead_receivers_test {

constexpr int kWarmUp = 20;  // deaths until the allocator has what it keeps
constexpr int kDeaths = 220;

// What this process holds.
struct Holdings {
  int64_t descriptors = 0;
  int64_t mappings = 0;
  int64_t private_kib = 0;  // anonymous memory
};

Holdings Now() {
  Holdings now;
  now.descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                  std::filesystem::directory_iterator());
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) ++now.mappings;
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "RssAnon:") status >> now.private_kib;
  }
  return now;
}

// Starts receivers, in a process of its own that has no device: one that has must not fork. Each number
// read is one to start; its address is the answer; the next number ends it.
void Nursery(int down, int up) {
  char byte;
  while (read(down, &byte, 1) == 1) {
    Child receiver(&Receiver);
    const auto address = receiver.Get<DcAddress>();
    if (write(up, &address, sizeof(address)) < 0 || read(down, &byte, 1) != 1) return;
  }
}

// Sends until its death is known here.
void SendUntilDead(DcNode& node, const DcAddress& to) {
  ibv_wc wc{};
  while (wc.status == IBV_WC_SUCCESS) {
    ASSERT_EQ(node.Send(to, "are you there", 2, 1), 0);
    wc = node.PollSend();
  }
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  node.Recover();
}

TEST(DeadReceivers, LeaveNothingInTheirSender) {
  Child nursery(&Nursery);
  DcNode node;
  Holdings first;
  for (int i = 0; i < kWarmUp + kDeaths; ++i) {
    if (i == kWarmUp) first = Now();
    nursery.Put('b');
    const auto address = nursery.Get<DcAddress>();
    ASSERT_EQ(node.Send(address, "x", 1, 1), 0);
    ASSERT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    nursery.Put('d');
    // Every second one is sent to while it dies.
    if (i % 2 == 0) SendUntilDead(node, address);
  }
  // The last one's end may still be under way, so a few are allowed.
  const Holdings last = Now();
  EXPECT_LE(last.descriptors, first.descriptors + 6);
  EXPECT_LE(last.mappings, first.mappings + 60);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(last.private_kib, first.private_kib + kDeaths) << "each death costs memory";
#endif
}

}  // namespace dead_receivers_test
}  // namespace sluice::softdc
