// SPDX-License-Identifier: Apache-2.0
//
// Calls of the C API that are handed over to the thread that drives. The channel has no server: calls wait for one.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "middleware/c_api/channel_core.h"
#include "tests/middleware/api/handover.h"
#include "tests/middleware/c_api/c_world.h"

namespace sluice {
namespace c_handover_test {

using testing_support::Bytes;
using testing_support::CCall;
using testing_support::CodeOf;
using testing_support::CStatus;
using testing_support::TextOf;

class CHandOverTest : public testing_support::HandOverTest {
 protected:
  static sluice_channel HandleOf(const std::shared_ptr<Channel>& channel) {
    return {std::make_shared<c_api::ChannelCore>(channel)};
  }
  static CCall Start(sluice_channel* channel, int64_t timeout_ns = 3'600'000'000'000) {
    sluice_call_options options = SLUICE_CALL_OPTIONS_INIT;
    options.timeout_ns = timeout_ns;
    options.wait_for_ready = 1;
    const std::string request = Bytes("hello");
    sluice_call* call = nullptr;
    const CStatus status(sluice_call_start(channel, "sluice.tests.chat.Chat/Say", request.data(),
                                           request.size(), &options, 0, &call));
    EXPECT_EQ(status, nullptr) << TextOf(status);
    return CCall(call);
  }
};

TEST_F(CHandOverTest, StartDoesNotWaitAndCancelBeforeTheStartEndsTheCall) {
  const auto channel = Connect();
  sluice_channel handle = HandleOf(channel);
  CCall cancelled, too_late;
  WhileAnotherDrives(channel.get(), [&] {
    cancelled = Start(&handle);
    too_late = Start(&handle, 1);
    sluice_call_cancel(cancelled.get());
    EXPECT_EQ(sluice_call_wait(cancelled.get(), 0), 0);
  });
  const CStatus first(sluice_call_finish(cancelled.get(), nullptr));
  EXPECT_EQ(CodeOf(first), static_cast<int>(absl::StatusCode::kCancelled)) << TextOf(first);
  const CStatus second(sluice_call_finish(too_late.get(), nullptr));
  EXPECT_EQ(CodeOf(second), static_cast<int>(absl::StatusCode::kDeadlineExceeded))
      << TextOf(second);
}

TEST_F(CHandOverTest, FreeTakesTheCallOutOfTheList) {
  const auto channel = ConnectLoop();
  sluice_channel handle = HandleOf(channel);
  CCall waits, too_late;
  std::thread([&] {
    waits = Start(&handle);
    too_late = Start(&handle, 1);
  }).join();
  (void)channel->counters();  // tries to start them
  CCall handed_over;
  std::thread([&] { handed_over = Start(&handle); }).join();
  handed_over.reset();
  too_late.reset();
  waits.reset();
  EXPECT_EQ(channel->counters().calls_started, 1u);
  for (int i = 0; i < 3; ++i) channel->Poll();
}

}  // namespace c_handover_test
}  // namespace sluice
