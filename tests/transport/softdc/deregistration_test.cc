// SPDX-License-Identifier: Apache-2.0
//
// Deregistration while another's copy is under way, held up in its middle by a kill point.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/verbs_objects.h"

static_assert(SOFTDC_KILL_POINTS, "link the instrumented model");

namespace sluice::softdc {
namespace {

constexpr size_t kBytes = 8 * 4096;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// The first copy of this process stops in its middle until it is let go.
struct Pause {
  std::atomic<bool> reached{false}, go_on{false};
} pause_point;
int tell_fd = -1;

void StopInTheMiddle(shm::KillPoint point) {
  if (point != shm::KillPoint::kPayloadHalfCopied || pause_point.reached.exchange(true)) return;
  if (tell_fd >= 0 && write(tell_fd, "x", 1) != 1) _exit(1);
  while (!pause_point.go_on.load()) std::this_thread::yield();
}

bool IsTakenBack(const DcNode& node, uint32_t handle) {
  return Context::From(node.context)->memory_regions()[handle].key.load() == 0;
}

// Memory that senders always copy into themselves. Private memory may be reached by a system call, without a kill point.
std::span<std::byte> SharedBytes(const DcNode& node) {
  return {node.slab + DcNode::kSlabBytes - kBytes, kBytes};
}

struct Place {
  DcAddress address;
  uint64_t buffer;
  uint32_t rkey;
};

int WriteTo(DcNode& node, const Place& place) {
  DcAddress to = place.address;
  to.slab_address = place.buffer;
  return node.Write(to, 0, std::string(4000, 'w'), 1, 0, place.rkey);
}

TEST(Deregistration, DoesNotWaitForACopierThatDies) {
  Child copier([](int down, int up) {
    Place place;
    if (read(down, &place, sizeof(place)) != sizeof(place)) return;
    tell_fd = up;
    shm::kill_point_hook = StopInTheMiddle;
    DcNode node;
    WriteTo(node, place);
    node.PollSend();
  });
  DcNode node;
  const std::span<std::byte> memory = SharedBytes(node);
  ibv_mr* mr = RegMr(node.pd, memory.data(), kBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  copier.Put(Place{node.Address(), reinterpret_cast<uint64_t>(memory.data()), mr->rkey});
  EXPECT_EQ(copier.Get<char>(), 'x');  // it is in the middle of its copy, for ever
  const uint32_t handle = mr->handle;
  std::thread deregisters([&] { EXPECT_EQ(DeregMr(mr), 0); });
  while (!IsTakenBack(node, handle)) std::this_thread::yield();
  copier.Kill();
  deregisters.join();
}

TEST(Deregistration, ReturnsWhenTheCopyHasEndedAndNothingLandsAfterwards) {
  DcNode node, other;
  const std::span<std::byte> memory = SharedBytes(node);
  ibv_mr* mr = RegMr(node.pd, memory.data(), kBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const Place place{node.Address(), reinterpret_cast<uint64_t>(memory.data()), mr->rkey};
  // The link first, so that the copy below runs on the poster's thread.
  ASSERT_EQ(WriteTo(other, place), 0);
  ASSERT_EQ(other.PollSend().status, IBV_WC_SUCCESS);
  pause_point.reached = false;
  pause_point.go_on = false;
  shm::kill_point_hook = StopInTheMiddle;
  std::thread writes([&] { EXPECT_EQ(WriteTo(other, place), 0); });
  while (!pause_point.reached.load()) std::this_thread::yield();
  std::atomic<bool> let_go{false};
  const uint32_t handle = mr->handle;
  std::thread deregisters([&] {
    EXPECT_EQ(DeregMr(mr), 0);
    EXPECT_TRUE(let_go.load()) << "it has returned while the copy was under way";
    std::memset(memory.data(), 0x11, kBytes);  // the program's own again
  });
  while (!IsTakenBack(node, handle)) std::this_thread::yield();
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to return wrongly
  let_go = true;
  pause_point.go_on = true;
  writes.join();
  deregisters.join();
  EXPECT_EQ(other.PollSend().status, IBV_WC_SUCCESS);
  shm::kill_point_hook = nullptr;
  for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0x11});
  ASSERT_EQ(WriteTo(other, place), 0);
  EXPECT_EQ(other.PollSend().status, IBV_WC_REM_ACCESS_ERR);
}

}  // namespace
}  // namespace sluice::softdc
