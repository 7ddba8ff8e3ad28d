// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/reception.h"

#include <memory>

#include "gtest/gtest.h"
#include "transport/device/device.h"
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

}  // namespace reception_test
}  // namespace sluice::endpoint
