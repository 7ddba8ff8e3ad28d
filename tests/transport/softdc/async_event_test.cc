// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous events: when they come, on which descriptor, and who waits for whom.
#include <fcntl.h>
#include <poll.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <thread>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/srq.h"
#include "transport/softdc/shm/claim_journal.h"
#include "transport/softdc/shm/srq_claimer.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace async_event_test {

bool Readable(int fd, int timeout_ms) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

// Arms a limit that stands already, so that the event is due at once.
void ReachLimit(DcNode& node) {
  ibv_srq_attr attr{};
  attr.srq_limit = 8;
  ASSERT_EQ(ModifySrq(node.srq, &attr, IBV_SRQ_LIMIT), 0);
}

TEST(AsyncEvent, DescriptorIsReadableWhileAnEventWaits) {
  DcNode node({.receives = 0});
  EXPECT_FALSE(Readable(node.context->async_fd, 0));
  ReachLimit(node);
  ASSERT_TRUE(Readable(node.context->async_fd, -1));
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, node.srq);
  EXPECT_FALSE(Readable(node.context->async_fd, 0));
  AckAsyncEvent(&event);
}

TEST(AsyncEvent, NonBlockingDescriptorWithoutAnEventSaysAgain) {
  DcNode node;
  ASSERT_EQ(fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(GetAsyncEvent(node.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(AsyncEvent, BlockingGetWaitsForTheEvent) {
  DcNode node({.receives = 0});
  ibv_async_event event{};
  std::thread waiter([&] { EXPECT_EQ(GetAsyncEvent(node.context, &event), 0); });
  ReachLimit(node);
  waiter.join();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  AckAsyncEvent(&event);
}

TEST(AsyncEvent, DestroyWaitsForTheAcknowledgement) {
  DcNode node;
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = CreateSrq(node.pd, &init);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr attr{};
  attr.srq_limit = 1;
  ASSERT_EQ(ModifySrq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  std::atomic<bool> acknowledged{false};
  std::thread destroyer([&] {
    EXPECT_EQ(DestroySrq(srq), 0);
    EXPECT_TRUE(acknowledged.load());
  });
  acknowledged.store(true);
  AckAsyncEvent(&event);
  destroyer.join();
}

// The limit is reached by a sender that says so late: while the SRQ is being destroyed.
TEST(AsyncEvent, NothingIsPostedOnceTheObjectIsBeingDestroyed) {
  DcNode node;
  Context& context = *Context::From(node.context);
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = CreateSrq(node.pd, &init);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  ASSERT_EQ(ModifySrq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  for (uint64_t i = 0; i < 2; ++i) {
    ibv_recv_wr wr{.wr_id = i, .next = nullptr, .sg_list = nullptr, .num_sge = 0};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ASSERT_EQ(ModifySrq(srq, &attr, IBV_SRQ_LIMIT), 0);
  alignas(shm::kLineBytes) std::array<std::byte, shm::ClaimJournal::Bytes()> line{};
  shm::ClaimJournal journal = *shm::ClaimJournal::Create(line.data(), line.size());
  auto sender = shm::SrqClaimer::Attach(context.arena().At(Srq::From(srq)->offset()),
                                        shm::SrqOwner::Bytes(16, 1));
  ASSERT_TRUE(sender);
  std::array<shm::ClaimedWqe, 1> claimed;
  ASSERT_TRUE(sender->Claim(1, journal, claimed).limit_reached);
  std::thread destroyer([&] { EXPECT_EQ(DestroySrq(srq), 0); });
  for (int i = 0; i < 1000; ++i) std::this_thread::yield();  // time to wait for the first event
  context.CollectNotices();
  AckAsyncEvent(&event);
  destroyer.join();
  EXPECT_FALSE(Readable(node.context->async_fd, 0)) << "an event of an SRQ that is gone";
}

TEST(AsyncEvent, DestroyDropsWhatNobodyHasAskedFor) {
  DcNode node;
  ibv_srq_init_attr init{};
  init.attr = {.max_wr = 16, .max_sge = 1, .srq_limit = 0};
  ibv_srq* srq = CreateSrq(node.pd, &init);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr attr{};
  attr.srq_limit = 1;
  ASSERT_EQ(ModifySrq(srq, &attr, IBV_SRQ_LIMIT), 0);
  EXPECT_EQ(DestroySrq(srq), 0);
  EXPECT_FALSE(Readable(node.context->async_fd, 0));
}

}  // namespace async_event_test
}  // namespace sluice::softdc
