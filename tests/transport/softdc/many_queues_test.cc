// SPDX-License-Identifier: Apache-2.0
//
// Many queues of one context that meet their targets at the same time, and much memory there.
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/fabric_shm/shm_fabric.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/loop/names.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/shm/number_space.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace many_queues_test {

constexpr int kQueues = 200;  // their completions fit into the node's CQ

std::vector<ibv_qp*> MakeQueues(PlainNode& node) {
  ibv_qp_init_attr init{};
  init.send_cq = node.send_cq;
  init.recv_cq = node.receive_cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  std::vector<ibv_qp*> queues;
  for (int i = 0; i < kQueues; ++i) {
    queues.push_back(CreateQp(node.pd, &init));
    EXPECT_NE(queues.back(), nullptr);
  }
  return queues;
}

void Connect(PlainNode& node, ibv_qp* queue, const ibv_qp* peer) {
  std::swap(node.qp, queue);
  node.ToInit();
  node.ToReady(peer->qp_num);
  std::swap(node.qp, queue);
}

TEST(ManyQueues, AskAboutTheirTargetsAtOnceAndAllAreAnswered) {
  PlainNode a, b;
  const std::vector<ibv_qp*> senders = MakeQueues(a);
  const std::vector<ibv_qp*> targets = MakeQueues(b);
  for (int i = 0; i < kQueues; ++i) {
    Connect(a, senders[i], targets[i]);
    Connect(b, targets[i], senders[i]);
  }
  ibv_send_wr write = a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 8);
  write.wr.rdma = {.remote_addr = b.Address(PlainNode::kSendArea), .rkey = b.mr->rkey};
  write.send_flags = IBV_SEND_SIGNALED;
  for (ibv_qp* sender : senders) {
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(sender, &write, &bad), 0);
  }
  for (int i = 0; i < kQueues; ++i) ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS) << i;
  for (ibv_qp* queue : senders) EXPECT_EQ(DestroyQp(queue), 0);
  for (ibv_qp* queue : targets) EXPECT_EQ(DestroyQp(queue), 0);
}

// A memory file each, as endpoints of one process have them.
class Regions {
 public:
  Regions(PlainNode& node, int count) {
    for (int i = 0; i < count; ++i) {
      const int file =
          files_.emplace_back(memfd_create("region", MFD_CLOEXEC | MFD_ALLOW_SEALING)).get();
      EXPECT_EQ(ftruncate(file, kBytes), 0);
      EXPECT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
      void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      EXPECT_NE(at, MAP_FAILED);
      places_.push_back(at);
      regions_.push_back(RegMr(node.pd, at, kBytes, kAccess));
      EXPECT_NE(regions_.back(), nullptr);
    }
  }
  ~Regions() {
    for (ibv_mr* region : regions_) EXPECT_EQ(DeregMr(region), 0);
    for (void* place : places_) EXPECT_EQ(munmap(place, kBytes), 0);
  }
  ibv_mr* last() const { return regions_.back(); }

 private:
  static constexpr size_t kBytes = 4096;
  static constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  std::vector<UniqueFd> files_;
  std::vector<void*> places_;
  std::vector<ibv_mr*> regions_;
};

// More than the socket between the two holds: whoever asked for all at once lost some of the requests,
// and then waited for their answers for ever.
TEST(ManyRegions, AreAskedForWithoutLosingTheRequestThatFollows) {
  PlainNode a, b;
  const Regions regions(b, /*count=*/350);
  a.ToReady(b.qp->qp_num);
  b.ToReady(a.qp->qp_num);
  ibv_send_wr write = a.Wr(IBV_WR_RDMA_WRITE, PlainNode::kSendArea, 8);
  write.wr.rdma = {.remote_addr = reinterpret_cast<uint64_t>(regions.last()->addr),
                   .rkey = regions.last()->rkey};
  ASSERT_EQ(a.Post(write), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
}

// Each answer about a target continues every queue that waits: one that stood in the list of those once
// for each of its tries kept the firmware thread so busy that answers were read too late.
TEST(ManyQueues, OneThatAsksAgainAndAgainStandsInTheListOnce) {
  constexpr uint32_t kBlock = 60'000;  // nobody takes so many
  constexpr uint64_t kTurns = 200;
  const UniqueFd silent = ListenAbstract(BlockSocketName(kBlock), /*backlog=*/1);
  ASSERT_TRUE(silent);
  PlainNode node;
  node.ToReady(kBlock * kNumbersPerBlock);
  ASSERT_EQ(node.Send("nobody answers", 1), 0);
  const uint64_t start = Loop::Get().wakeups();
  while (Loop::Get().wakeups() < start + kTurns) std::this_thread::yield();
  EXPECT_EQ(static_cast<ShmPort&>(Context::From(node.context)->port()).waiting(), 1u);
}

}  // namespace many_queues_test
}  // namespace sluice::softdc
