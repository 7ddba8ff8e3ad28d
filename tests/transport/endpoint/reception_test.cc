// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/reception.h"

#include <algorithm>
#include <memory>

#include "gtest/gtest.h"
#include "transport/device/device.h"
#include "transport/endpoint/buffer_sizes.h"
#include "transport/softdc/verbs.h"

namespace sluice::endpoint {
namespace reception_test {

// A message finds a buffer, and its copy after an error another one.
TEST(Reception, APromiseIsCoveredTwiceByPostedBuffers) {
  auto device = device::Device::Open("softdc0", {&softdc::Verbs()});
  ASSERT_TRUE(device.ok()) << device.status();
  auto cq = verbs::CreateCq((*device)->api(), (*device)->context(), 512, nullptr);
  ASSERT_TRUE(cq.ok()) << cq.status();
  auto queue = receive::ReceiveQueue::Create(
      **device, cq->get(),
      {.depth = 512, .first = Reception::kSpareBuffers, .buffer_bytes = 256, .dct = false});
  ASSERT_TRUE(queue.ok()) << queue.status();
  Reception reception;
  reception.srq_size = 496;
  reception.data = *std::move(queue);

  reception.Promise(0, 64);
  EXPECT_EQ(reception.data->in_use(), 2 * 64 + Reception::kSpareBuffers);
  reception.Promise(1, 64);
  EXPECT_EQ(reception.data->in_use(), 2 * 128 + Reception::kSpareBuffers);
  // A window that is free covers the next one.
  reception.Free(1, 64, Holding::kHeld);
  reception.Promise(2, 64);
  EXPECT_EQ(reception.data->in_use(), 2 * 128 + Reception::kSpareBuffers);
  reception.Promise(3, 300);
  EXPECT_EQ(reception.data->in_use(), 512u);
}

class ReceptionControl : public testing::Test {
 protected:
  static constexpr uint32_t kDepth = 512;
  static constexpr uint32_t kWindow = 4;
  // Number of control messages of one look that end their sender.
  const uint32_t flood_ = peer::ReceiveCredits::MostControl(kWindow) + 1;

  void SetUp() override {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    ASSERT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
    cq_ = *verbs::CreateCq(device_->api(), device_->context(), kDepth, nullptr);
    auto queue = receive::ReceiveQueue::Create(
        *device_, cq_.get(),
        {.depth = kDepth, .first = 0, .buffer_bytes = kControlBufferBytes, .dct = false});
    ASSERT_TRUE(queue.ok()) << queue.status();
    reception_.control = *std::move(queue);
  }
  // Returns the number of buffers that are certainly posted while others wait to be posted again.
  uint32_t Ready() const {
    const uint32_t posted = reception_.control->in_use();
    return posted - std::min(posted, receive::ReceiveQueue::kRefillBatch - 1);
  }

  std::unique_ptr<device::Device> device_;
  verbs::Cq cq_;
  Reception reception_;
};

TEST_F(ReceptionControl, AServerThatIsTheOnlyPeerFindsAFewDozen) {
  reception_.Add(/*inbound=*/false, kWindow);
  EXPECT_EQ(reception_.peers, 1u);
  EXPECT_GE(Ready(), kControlBuffersPerPeer + kControlBuffersForOnePeer);
  EXPECT_LE(reception_.control->in_use(), 60u);
}

TEST_F(ReceptionControl, AClientFindsAsManyAsAreAFlood) {
  reception_.Add(/*inbound=*/true, kWindow);
  EXPECT_GE(Ready(), flood_ + kControlBuffersForLanes);
}

TEST_F(ReceptionControl, AClientWithALargerWindowMaySendMoreBeforeItIsAFlood) {
  constexpr uint32_t kLarge = 4 * kWindow;
  reception_.Add(/*inbound=*/true, kWindow);
  reception_.Widen(kLarge);
  EXPECT_GE(Ready(), peer::ReceiveCredits::MostControl(kLarge) + 1 + kControlBuffersForLanes);
}

TEST_F(ReceptionControl, AServerThatFollowsAnotherIsNotAlone) {
  reception_.Add(/*inbound=*/false, kWindow);
  --reception_.peers;
  reception_.Add(/*inbound=*/false, kWindow);
  EXPECT_GE(Ready(), flood_ + kControlBuffersForLanes);
}

TEST_F(ReceptionControl, EachPeerHasItsShareBesideAFlood) {
  for (uint32_t peers = 1; peers <= 12; ++peers) {
    reception_.Add(/*inbound=*/false, kWindow);
    if (peers == 1) continue;
    EXPECT_GE(Ready(), peers * kControlBuffersPerPeer + kControlBuffersForLanes + flood_ - 1);
  }
  // The share of a peer that has left is the share of the next peer.
  const uint32_t posted = reception_.control->in_use();
  --reception_.peers;
  reception_.Add(/*inbound=*/false, kWindow);
  EXPECT_EQ(reception_.control->in_use(), posted);
}

TEST_F(ReceptionControl, NoMoreThanAllArePosted) {
  for (int i = 0; i < 100; ++i) reception_.Add(/*inbound=*/true, kWindow);
  EXPECT_EQ(reception_.control->in_use(), kDepth);
  EXPECT_EQ(reception_.control->lost_buffers(), 0u);
}

}  // namespace reception_test
}  // namespace sluice::endpoint
