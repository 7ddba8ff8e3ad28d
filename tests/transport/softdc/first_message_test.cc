// SPDX-License-Identifier: Apache-2.0
//
// The first message between two contexts: what the answer to the hello carries is not asked for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <vector>

#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/control.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/verbs_objects.h"

static_assert(SOFTDC_KILL_POINTS, "link the instrumented model");

namespace sluice::softdc {
namespace {

std::atomic<int> hellos{0}, targets_asked{0};

void Count(shm::KillPoint point) {
  if (point == shm::KillPoint::kHelloSent) ++hellos;
  if (point == shm::KillPoint::kTargetAsked) ++targets_asked;
}

class FirstMessageTest : public ::testing::Test {
 protected:
  // Before there is another thread. The hook stays.
  static void SetUpTestSuite() { shm::kill_point_hook = &Count; }
  void SetUp() override { hellos = targets_asked = 0; }

  void SendTo(uint32_t number) {
    DcAddress to = receiver_.Address();
    to.dctn = number;
    ASSERT_EQ(sender_.Send(to, "x", 1), 0);
    EXPECT_EQ(sender_.PollSend().status, IBV_WC_SUCCESS);
  }
  ibv_qp* MakeDct(ibv_cq* cq) {
    return receiver_.MakeDct(cq, receiver_.srq, receiver_.Address().dc_key);
  }

  DcNode sender_, receiver_;
};

TEST_F(FirstMessageTest, AsksForNothingBehindItsHello) {
  SendTo(receiver_.dct->qp_num);
  EXPECT_EQ(hellos, 1);
  EXPECT_EQ(targets_asked, 0);
  EXPECT_EQ(receiver_.ReceivedText(receiver_.PollReceive()), "x");
}

TEST_F(FirstMessageTest, BringsTheOtherTargetsOfTheCq) {
  ibv_qp* same_cq = MakeDct(receiver_.receive_cq);
  ibv_qp* other_cq = MakeDct(receiver_.send_cq);
  ASSERT_TRUE(same_cq != nullptr && other_cq != nullptr);
  SendTo(receiver_.dct->qp_num);
  SendTo(same_cq->qp_num);
  EXPECT_EQ(targets_asked, 0);
  SendTo(other_cq->qp_num);
  EXPECT_EQ(targets_asked, 1);
  EXPECT_EQ(hellos, 1);
  EXPECT_EQ(DestroyQp(same_cq), 0);
  EXPECT_EQ(DestroyQp(other_cq), 0);
}

TEST_F(FirstMessageTest, AsksForItsTargetIfThereAreManySegments) {
  constexpr size_t kBytes = 4096;
  std::vector<UniqueFd> files;
  std::vector<void*> mappings;
  std::vector<ibv_mr*> regions;
  for (size_t i = 0; i < shm::kMaxCarriedSegments; ++i) {  // one more than fits, with the slab
    files.emplace_back(memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(files.back().get(), kBytes), 0);
    ASSERT_EQ(fcntl(files.back().get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    mappings.push_back(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.back().get(), 0));
    ASSERT_NE(mappings.back(), MAP_FAILED);
    regions.push_back(RegMr(receiver_.pd, mappings.back(), kBytes, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(regions.back(), nullptr);
  }
  SendTo(receiver_.dct->qp_num);
  EXPECT_EQ(targets_asked, 1);
  EXPECT_EQ(receiver_.ReceivedText(receiver_.PollReceive()), "x");
  for (ibv_mr* region : regions) EXPECT_EQ(DeregMr(region), 0);
  for (void* mapping : mappings) munmap(mapping, kBytes);
}

}  // namespace
}  // namespace sluice::softdc
