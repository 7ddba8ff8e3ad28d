// SPDX-License-Identifier: Apache-2.0
//
// The receives of an RC queue pair that goes to ERR or RESET while a sender has some of them in its hands:
// each of them is flushed, or forgotten, however that sender ends.
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/loop/loop.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/kill_point.h"
#include "transport/softdc/verbs_objects.h"

static_assert(SOFTDC_KILL_POINTS, "link the instrumented model");

namespace sluice::softdc {
namespace {

constexpr uint32_t kReceives = 16;
constexpr uint32_t kMaxReceives = 64;

// The first time that this process gets there it stops until it is let go.
struct Pause {
  shm::KillPoint at{};
  std::atomic<bool> reached{false}, go_on{false};
} pause_point;
int tell_fd = -1;

void Stop(shm::KillPoint point) {
  if (point != pause_point.at || pause_point.reached.exchange(true)) return;
  if (tell_fd >= 0 && write(tell_fd, "x", 1) != 1) _exit(1);
  while (!pause_point.go_on.load()) std::this_thread::yield();
}

void HoldUp(shm::KillPoint point) {
  pause_point.at = point;
  pause_point.reached = false;
  pause_point.go_on = false;
  shm::kill_point_hook = Stop;
}

// A process whose only message stops when it has its receive.
void ClaimAndStop(int down, int up) {
  PlainNode node;
  uint32_t peer = node.qp->qp_num;
  if (write(up, &peer, sizeof(peer)) < 0) return;
  if (read(down, &peer, sizeof(peer)) != sizeof(peer)) return;
  node.ToReady(peer);
  tell_fd = up;
  pause_point.at = shm::KillPoint::kWqeClaimed;
  shm::kill_point_hook = Stop;
  node.Send("never whole", 1);
  node.PollSend();
}

void Connect(PlainNode& node, Child& child) {
  node.ToReady(child.Get<uint32_t>());
  child.Put(node.qp->qp_num);
  EXPECT_EQ(child.Get<char>(), 'x');  // it has a receive, for ever
}

// What others have done before, the firmware thread has seen afterwards.
void LetFirmwareRun() {
  for (int i = 0; i < 3; ++i) Loop::Get().RunAndWait([] {});
}

// The wr_ids of all completions that are there, which are to be flushed receives.
std::multiset<uint64_t> PollFlushed(PlainNode& node) {
  std::multiset<uint64_t> flushed;
  ibv_wc wc{};
  for (int quiet = 0; quiet < 3;) {
    if (ibv_poll_cq(node.receive_cq, 1, &wc) == 0) {
      ++quiet;
      continue;
    }
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    flushed.insert(wc.wr_id);
  }
  return flushed;
}

std::multiset<uint64_t> Numbers(uint64_t from, uint64_t to) {
  std::multiset<uint64_t> numbers;
  for (uint64_t i = from; i < to; ++i) numbers.insert(i);
  return numbers;
}

// As many receives as the queue pair was made for.
void ExpectRoomForAllReceives(PlainNode& node) {
  for (uint64_t i = 0; i < kMaxReceives; ++i) {
    ASSERT_EQ(node.PostReceive(i % kReceives), 0) << "after " << i;
  }
}

// The same to a DCT.
void ClaimOfSrqAndStop(int down, int up) {
  DcNode node;
  DcAddress to;
  if (read(down, &to, sizeof(to)) != sizeof(to)) return;
  tell_fd = up;
  pause_point.at = shm::KillPoint::kWqeClaimed;
  shm::kill_point_hook = Stop;
  node.Send(to, "never whole", 1);
  node.PollSend();
}

// A sender that lives, and sends no more, has had the same tickets of an earlier SRQ with the same id.
void ExpectReceiveComesBackBesideAQuietSender(Child& dies) {
  DcNode lasting, receiver;
  ASSERT_EQ(lasting.Send(receiver.Address(), "first", 1), 0);
  EXPECT_EQ(receiver.PollReceive().status, IBV_WC_SUCCESS);
  const uint32_t id = Srq::From(receiver.srq)->id();
  receiver.RenewTarget();
  ASSERT_EQ(Srq::From(receiver.srq)->id(), id);
  receiver.PostReceives(1);
  dies.Put(receiver.Address());
  EXPECT_EQ(dies.Get<char>(), 'x');
  dies.Kill();
  LetFirmwareRun();
  EXPECT_EQ(Srq::From(receiver.srq)->owner().Unclaimed(), 1u) << "the receive is lost";
}

// First, since it forks.
TEST(QueueEnd, ReceiveOfASenderThatDiesIsFlushedForgottenOrPostedAgain) {
  Child first(ClaimAndStop), second(ClaimAndStop), third(ClaimOfSrqAndStop);
  {
    PlainNode node;
    Connect(node, first);
    ASSERT_EQ(node.ToState(IBV_QPS_ERR), 0);
    EXPECT_EQ(PollFlushed(node), Numbers(1, kReceives));
    first.Kill();
    LetFirmwareRun();
    EXPECT_EQ(PollFlushed(node), Numbers(0, 1)) << "a receive never ends";
  }
  PlainNode node;
  Connect(node, second);
  std::thread resets([&] { EXPECT_EQ(node.ToState(IBV_QPS_RESET), 0); });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to return wrongly
  second.Kill();
  resets.join();
  LetFirmwareRun();
  node.ToInit();
  ExpectRoomForAllReceives(node);
  ExpectReceiveComesBackBesideAQuietSender(third);
}

TEST(QueueEnd, ErrorFlushesWhatASenderGivesBack) {
  PlainPair pair({}, {.receives = kReceives, .receive_bytes = 64});
  // One doorbell: the first is too long for its receive, so the receives of the others go back.
  ibv_sge sges[3];
  ibv_send_wr wrs[3]{}, *bad = nullptr;
  for (int i = 0; i < 3; ++i) {
    sges[i] = {.addr = pair.a.Address(PlainNode::kSendArea),
               .length = i == 0 ? 65u : 8u,
               .lkey = pair.a.mr->lkey};
    wrs[i].opcode = IBV_WR_SEND;
    wrs[i].sg_list = &sges[i];
    wrs[i].num_sge = 1;
    wrs[i].next = i == 2 ? nullptr : &wrs[i + 1];
  }
  ASSERT_EQ(ibv_post_send(pair.a.qp, wrs, &bad), 0);
  while (pair.b.State() != IBV_QPS_ERR) std::this_thread::yield();
  const ibv_wc too_long = pair.b.PollReceive();
  EXPECT_EQ(too_long.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(too_long.wr_id, 0u);
  EXPECT_EQ(PollFlushed(pair.b), Numbers(1, kReceives)) << "what came back never ends";
}

TEST(QueueEnd, NothingOfBeforeAResetIsDeliveredAfterIt) {
  PlainPair pair;
  // The link first, so that the copy runs on the poster's thread.
  ASSERT_EQ(pair.a.Send("first", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.PollReceive().status, IBV_WC_SUCCESS);
  HoldUp(shm::KillPoint::kPayloadHalfCopied);
  std::thread sends([&] { EXPECT_EQ(pair.a.Send("second", 2), 0); });
  while (!pause_point.reached.load()) std::this_thread::yield();
  std::atomic<bool> let_go{false};
  std::thread resets([&] {
    EXPECT_EQ(pair.b.ToState(IBV_QPS_RESET), 0);
    EXPECT_TRUE(let_go.load()) << "it has returned while a copy was under way";
  });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to return wrongly
  let_go = true;
  pause_point.go_on = true;
  sends.join();
  resets.join();
  shm::kill_point_hook = nullptr;
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(pair.b.receive_cq, 1, &wc), 0);
  pair.b.ToInit();
  ExpectRoomForAllReceives(pair.b);
}

// Its message has failed, so the firmware thread closes its receiving half.
TEST(QueueEnd, DestroyedWhileItFails) {
  PlainNode nobody;
  auto node = std::make_unique<PlainNode>();
  node->ToReady(nobody.qp->qp_num);
  HoldUp(shm::KillPoint::kTargetGone);
  ASSERT_EQ(node->Send("to nobody", 1), 0);
  while (!pause_point.reached.load()) std::this_thread::yield();
  std::thread destroys([&] { node.reset(); });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to destroy it too early
  pause_point.go_on = true;
  destroys.join();
  shm::kill_point_hook = nullptr;
}

TEST(QueueEnd, WhatItForgetsLeavesItsRoomInTheCq) {
  constexpr int kLives = 40;  // with 640 messages that nobody reads; the CQ was made for 256
  PlainPair pair;
  for (int life = 0; life < kLives; ++life) {
    for (uint64_t i = 0; i < kReceives; ++i) {
      ASSERT_EQ(pair.a.Send("unread", i), 0);
      ASSERT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS) << "life " << life;
    }
    for (PlainNode* node : {&pair.a, &pair.b}) {
      ASSERT_EQ(node->ToState(IBV_QPS_RESET), 0);
      node->ToInit();
      for (uint64_t i = 0; i < kReceives; ++i) ASSERT_EQ(node->PostReceive(i), 0);
    }
    pair.a.ToReady(pair.b.qp->qp_num);
    pair.b.ToReady(pair.a.qp->qp_num);
  }
  ASSERT_EQ(pair.a.Send("fresh", 1), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(pair.b.receive_cq, 1, &wc), 1) << "it is lost";
  EXPECT_EQ(pair.b.Text(wc.wr_id, 0, wc.byte_len), "fresh");
}

}  // namespace
}  // namespace sluice::softdc
