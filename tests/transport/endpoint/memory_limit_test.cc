// SPDX-License-Identifier: Apache-2.0
//
// An endpoint on a device that locks registered memory, with a limit of 8 MiB (memory.memlock_bytes in
// BUILD), and with options that ask for more receive buffers than the device holds.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"
#include "transport/memory/slab.h"

namespace sluice::endpoint {
namespace {

using ::testing::HasSubstr;

constexpr size_t kLimitBytes = 8 << 20;

struct Maker {
  absl::Status Create(const Options& options) {
    auto created = CreateEndpoint(options, *device, clock, random, commands, &recorder);
    return created.status();
  }

  std::unique_ptr<device::Device> device =
      std::move(*device::Device::Open("softdc0", {&softdc::Verbs()}));
  Recorder recorder;
  base::RealClock clock;
  base::SystemRandom random;
  poller::ThreadCommands commands;
};

Options SmallOptions() {
  Options options;
  options.max_message_bytes = 1024;
  options.srq_size = 256;
  options.send_buffers = 256;
  options.max_peers = 64;
  return options;
}

TEST(MemoryLimit, RegionBeyondTheLimitIsRefusedUntilMemoryIsFreed) {
  Maker maker;
  const auto make = [&](size_t bytes) {
    return memory::Slab::Create(maker.device->api(), maker.device->pd(), bytes,
                                IBV_ACCESS_LOCAL_WRITE);
  };
  auto first = make(kLimitBytes - 4096);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(make(4096).ok());
  const absl::Status refused = make(4097).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("ENOMEM"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("8192 bytes of memory"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("RLIMIT_MEMLOCK"));
  *first = {};
  EXPECT_TRUE(make(kLimitBytes).ok());
}

TEST(MemoryLimit, CreateSaysHowMuchTheOptionsNeed) {
  Maker maker;
  Options options;
  options.max_large_bytes = 1 << 20;
  options.large_memory_bytes = 256 << 20;
  const absl::Status refused = maker.Create(options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("an endpoint with these options registers 35 MiB when it is created, and up "
                "to 514 MiB later"));
}

TEST(MemoryLimit, SmallOptionsFit) {
  Maker maker;
  const absl::Status status = maker.Create(SmallOptions());
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ReceiveBufferLimit, CreateNamesTheOptionThatTheDeviceCannotMeet) {
  Maker maker;
  ASSERT_EQ(maker.device->limits().max_srq_wr, 32'767u);
  Options options = SmallOptions();
  options.max_message_bytes = 64;
  options.srq_size = 32'752;
  absl::Status refused = maker.Create(options);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(refused.message()),
      HasSubstr("option srq_size (limits.receive_buffers) is 32752: it must be at most 32751 "
                "on softdc0, whose shared receive queues hold 32767 requests"));
}

TEST(ReceiveBufferLimit, ControlBuffersAreSharedByPeersBeyondThose) {
  Maker maker;
  Options options = SmallOptions();
  options.max_message_bytes = 64;
  options.max_peers = 1 << 16;
  const absl::Status status = maker.Create(options);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace sluice::endpoint
