// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/loop_descriptor.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace sluice {
namespace loop_descriptor_test {

constexpr int kHangMs = 30'000;
constexpr int64_t kHourNs = 3'600'000'000'000;

class LoopDescriptorTest : public ::testing::Test {
 protected:
  ~LoopDescriptorTest() override { close(endpoint_fd_); }

  bool Readable(int timeout_ms) const {
    pollfd fd{loop_->fd(), POLLIN, 0};
    return poll(&fd, 1, timeout_ms) == 1;
  }

  const int endpoint_fd_ = eventfd(0, EFD_NONBLOCK);
  std::unique_ptr<LoopDescriptor> loop_ = *LoopDescriptor::Create(endpoint_fd_);
};

TEST_F(LoopDescriptorTest, IsReadableWhileTheEndpointIs) {
  EXPECT_FALSE(Readable(0));
  uint64_t count = 1;
  ASSERT_EQ(write(endpoint_fd_, &count, sizeof(count)), 8);
  EXPECT_TRUE(Readable(0));
  ASSERT_EQ(read(endpoint_fd_, &count, sizeof(count)), 8);
  EXPECT_FALSE(Readable(0));
}

TEST_F(LoopDescriptorTest, IsReadableOnceTheTimeIsOver) {
  loop_->WakeAfter(1'000'000);
  EXPECT_TRUE(Readable(kHangMs));
  EXPECT_TRUE(Readable(0)) << "and stays so";
}

TEST_F(LoopDescriptorTest, ATimeThatIsOverAlreadyIsOverAtOnce) {
  loop_->WakeAfter(0);
  EXPECT_TRUE(Readable(kHangMs));
}

TEST_F(LoopDescriptorTest, WhatIsSaidLastCounts) {
  loop_->WakeAfter(1);
  ASSERT_TRUE(Readable(kHangMs));
  loop_->WakeAfter(kHourNs);
  EXPECT_FALSE(Readable(0));
  loop_->WakeAfter(1);
  ASSERT_TRUE(Readable(kHangMs));
  loop_->WakeAfter(-1);
  EXPECT_FALSE(Readable(0));
}

}  // namespace loop_descriptor_test
}  // namespace sluice
