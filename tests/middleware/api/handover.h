// SPDX-License-Identifier: Apache-2.0
//
// HandOverTest: channels without a server, on which calls wait, and a thread that drives a channel and is stuck there.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_HANDOVER_H_
#define SLUICE_TESTS_MIDDLEWARE_API_HANDOVER_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "examples/echo/echo.sluice.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/call_context.h"
#include "middleware/api/channel.h"
#include "middleware/api/runtime.h"
#include "tests/support/fake_stack.h"

namespace sluice::testing_support {

// A call with a CallControl that waits until its channel ends. The object lives longer than the call.
struct Controlled {
  explicit Controlled(absl::Duration timeout = absl::InfiniteDuration()) : context(timeout) {
    context.set_wait_for_ready(true);
  }
  absl::Status Start(Channel* channel, const google::protobuf::MessageLite& what) {
    return channel->StartCall(examples::echo::EchoClient::SayMethod(), context, what, &reply,
                              &OnDone, this, &control);
  }
  static void OnDone(void* argument, const absl::Status& status) {
    auto* const self = static_cast<Controlled*>(argument);
    self->end = status;
    self->ended.fetch_add(1);
    if (self->at_end) self->at_end();
  }

  CallContext context;
  examples::echo::SayReply reply;
  call::CallControl control;
  absl::Status end;
  std::atomic<int> ended{0};
  std::function<void()> at_end;
};

class HandOverTest : public ::testing::Test {
 protected:
  // Lives longer than all channels: a background thread may end the last one after its test.
  static FakeNetwork& Network() {
    static auto* const network = new FakeNetwork();
    return *network;
  }
  std::unique_ptr<FakeStack> MakeStack() {
    return std::make_unique<FakeStack>(&Network(), FakeNetwork::Options(), &end_);
  }
  std::shared_ptr<Channel> Connect(const std::shared_ptr<Runtime>& runtime = nullptr,
                                   ChannelOptions options = {}) {
    options.connect_in_background = true;
    auto channel = runtime == nullptr ? Channel::ConnectOn(MakeStack(), "h:1", options)
                                      : Channel::ConnectIn(runtime, "h:1", options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }
  // The thread of the test drives it in its calls. Other threads hand their calls over to it.
  std::shared_ptr<Channel> ConnectLoop() {
    ChannelOptions options;
    options.driving = Driving::kCaller;
    return Connect(nullptr, std::move(options));
  }
  std::shared_ptr<Runtime> MakeRuntime(Driving driving) {
    RuntimeOptions options;
    options.driving = driving;
    auto runtime = Runtime::CreateOn(MakeStack(), options);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    return *std::move(runtime);
  }
  // Lets another thread drive, and runs `meanwhile` while that thread is stuck in its condition. `at_last` runs there afterwards.
  static void WhileAnotherDrives(
      Channel* channel, const std::function<void()>& meanwhile,
      const std::function<void()>& at_last = [] {}) {
    std::atomic<bool> drives{false};
    std::atomic<bool> over{false};
    bool last = true;
    std::thread driver([&] {
      channel->Drive(
          [&] {
            drives = true;
            while (!over) std::this_thread::yield();
            if (std::exchange(last, false)) at_last();
            return true;
          },
          absl::InfiniteDuration());
    });
    while (!drives) std::this_thread::yield();
    meanwhile();
    over = true;
    driver.join();
  }

  FakeEndpoint* end_ = nullptr;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_HANDOVER_H_
