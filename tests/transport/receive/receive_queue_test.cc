// SPDX-License-Identifier: Apache-2.0
#include "transport/receive/receive_queue.h"

#include <sys/resource.h>

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transport/softdc/verbs.h"

namespace sluice::receive {
namespace receive_queue_test {

constexpr uint32_t kDepth = 64;  // a power of two: the device has no room beyond it
constexpr uint32_t kBufferBytes = 256;

class ReceiveQueueTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
    cq_ = *verbs::CreateCq(device_->api(), device_->context(), kDepth, nullptr);
  }

  std::unique_ptr<ReceiveQueue> Make(uint32_t first) {
    auto queue = ReceiveQueue::Create(
        *device_, cq_.get(), {.depth = kDepth, .first = first, .buffer_bytes = kBufferBytes});
    if (!queue.ok()) {
      ADD_FAILURE() << queue.status();
      return nullptr;
    }
    return *std::move(queue);
  }

  // Fills what is left of the device's queue. The queue is of no use afterwards.
  static uint32_t PlacesLeft(ReceiveQueue& queue) {
    ibv_recv_wr work = {}, *bad = nullptr;
    uint32_t count = 0;
    while (ibv_post_srq_recv(queue.srq(), &work, &bad) == 0) ++count;
    return count;
  }

  std::unique_ptr<device::Device> device_;
  verbs::Cq cq_;
};

TEST_F(ReceiveQueueTest, AllBuffersArePostedUnlessToldOtherwise) {
  auto queue = Make(UINT32_MAX);
  EXPECT_EQ(queue->in_use(), kDepth);
  EXPECT_EQ(PlacesLeft(*queue), 0u);
}

TEST_F(ReceiveQueueTest, TheFirstBuffersArePostedAndOthersWhenTheyAreWanted) {
  auto queue = Make(8);
  EXPECT_EQ(queue->in_use(), 8u);
  EXPECT_EQ(PlacesLeft(*queue), kDepth - 8);

  queue = Make(8);
  queue->Want(20);
  EXPECT_EQ(queue->in_use(), 20u);
  queue->Want(10);  // those that are in use stay
  EXPECT_EQ(queue->in_use(), 20u);
  EXPECT_EQ(PlacesLeft(*queue), kDepth - 20);
}

TEST_F(ReceiveQueueTest, NoMoreThanAllBuffersArePosted) {
  auto queue = Make(8);
  queue->Want(uint64_t{1} << 40);
  EXPECT_EQ(queue->in_use(), kDepth);
  EXPECT_EQ(queue->lost_buffers(), 0u);
  EXPECT_EQ(PlacesLeft(*queue), 0u);
}

uint64_t PageFaults() {
  rusage usage;
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return static_cast<uint64_t>(usage.ru_minflt);
}

// The tables of all buffers have some 200 pages here, and the device's as many.
TEST_F(ReceiveQueueTest, TablesTakePagesAsBuffersArePosted) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own tables have page faults too";
#endif
  constexpr uint32_t kLargeDepth = 16384;
  const uint64_t before = PageFaults();
  auto queue = ReceiveQueue::Create(
      *device_, cq_.get(), {.depth = kLargeDepth, .first = 8, .buffer_bytes = kBufferBytes});
  ASSERT_TRUE(queue.ok()) << queue.status();
  EXPECT_LT(PageFaults() - before, 100u);
  (*queue)->Want(kLargeDepth);
  EXPECT_GT(PageFaults() - before, 300u);
  EXPECT_EQ((*queue)->lost_buffers(), 0u);
}

}  // namespace receive_queue_test
}  // namespace sluice::receive
