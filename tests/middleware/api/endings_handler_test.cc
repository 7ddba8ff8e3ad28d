// SPDX-License-Identifier: Apache-2.0
//
// Servers and messengers that are drained, closed and destroyed in their own handlers.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "middleware/api/messenger.h"
#include "tests/middleware/api/chat_service.h"
#include "tests/support/executors.h"

namespace sluice {
namespace endings_handler_test {

using testing_support::ChatServiceBase;
using testing_support::ChatWorld;
using testing_support::FakeNetwork;
using testing_support::FakeStack;
using testing_support::Gate;
using testing_support::Line;
using testing_support::ThreadExecutor;

class HandlerEndingsTest : public ChatWorld {
 protected:
  const Line hello_ = Text("hello");
};

// ---- Servers

// Does what the test wants, in a handler.
class Doing final : public ChatServiceBase {
 public:
  absl::Status Say(ServerContext&, const Line&, Line*) override {
    what();
    return absl::OkStatus();
  }
  std::function<void()> what;
};

// The handler has answered. Its thread is still waking the polling thread, which has the answer and ends.
TEST_F(HandlerEndingsTest, ServerWaitsForTheThreadThatWakesIt) {
  Doing doing;
  doing.what = [this] { server_end_->WaitUntilArmed(); };
  Gate waking, goes_on;
  ThreadExecutor executor;
  server_options_.spin = absl::ZeroDuration();
  Start(&doing, {.executor = &executor});
  const std::thread::id tests_thread = std::this_thread::get_id();
  server_end_->set_after_wake([&] {
    if (std::this_thread::get_id() == tests_thread) return;
    waking.Open();
    goes_on.Wait();
  });
  CallContext context(absl::Seconds(60));
  Line reply;
  ASSERT_TRUE(client().StartSay(context, hello_, &reply, [](const absl::Status&) {}).ok());
  waking.Wait();
  const absl::Status status = server_->Shutdown(absl::ZeroDuration());
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  goes_on.Open();
  TearDown();
}

TEST_F(HandlerEndingsTest, DrainAndShutdownInAHandlerAreRefused) {
  for (const bool on_executor : {false, true}) {
    SCOPED_TRACE(on_executor);
    Doing doing;
    std::vector<absl::Status> ends;
    doing.what = [&] {
      ends = {server_->Drain(absl::Milliseconds(100)), server_->Shutdown(absl::Milliseconds(100))};
    };
    ThreadExecutor executor;
    Start(&doing, {.executor = on_executor ? &executor : nullptr});
    CallContext context(absl::Seconds(60));
    EXPECT_TRUE(client().Say(context, hello_).ok());
    ASSERT_EQ(ends.size(), 2u);
    for (const absl::Status& end : ends) {
      EXPECT_EQ(end.code(), absl::StatusCode::kFailedPrecondition) << end;
    }
    TearDown();
  }
}

using HandlerEndingsDeathTest = HandlerEndingsTest;

TEST_F(HandlerEndingsDeathTest, ServerThatIsDestroyedInAHandlerSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const bool on_executor : {false, true}) {
    SCOPED_TRACE(on_executor);
    const auto end_it = [&] {
      Doing doing;
      doing.what = [&] { server_.reset(); };
      ThreadExecutor executor;
      Start(&doing, {.executor = on_executor ? &executor : nullptr});
      CallContext context(absl::Seconds(60));
      (void)client().Say(context, hello_);
    };
    EXPECT_DEATH(end_it(), "Server destroyed in a handler of its own");
  }
}

// ---- Messengers

struct Ear final : FlowHandler {
  void OnOpen(Flow flow) override {
    if (opened) opened(flow);
  }
  void OnMessage(Flow, std::span<const std::byte>) override {}
  void OnClosed(Flow, const absl::Status& status, const FlowTotals&) override { why = status; }
  std::function<void(Flow)> opened;
  std::optional<absl::Status> why;
};

class MessengerEndingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (std::unique_ptr<Messenger>* messenger : {&here_, &there_}) {
      auto made = Messenger::CreateOn(
          std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), MessengerOptions());
      ASSERT_TRUE(made.ok()) << made.status();
      *messenger = *std::move(made);
    }
    ASSERT_TRUE(there_->Accept("end", {}, [&](Flow, const Offer&) { return &accepted_; }).ok());
    ASSERT_TRUE(there_->Listen("h:1").ok());
    ASSERT_TRUE(here_->Open("h:1", "end", {}, &ear_).ok());
  }
  void Settle() {
    for (int quiet = 0; quiet < 5;) {
      quiet = (here_ ? here_->Poll() : 0) + there_->Poll() > 0 ? 0 : quiet + 1;
    }
  }

  FakeNetwork network_;
  Ear ear_, accepted_;
  std::unique_ptr<Messenger> here_, there_;
};

TEST_F(MessengerEndingsTest, CloseInAHandlerTakesEffectBehindIt) {
  ear_.opened = [&](Flow) {
    here_->Close();
    EXPECT_FALSE(ear_.why.has_value()) << "its handler is still in OnOpen()";
    EXPECT_EQ(here_->Poll(), 0);
    EXPECT_FALSE(here_->PrepareToSleep());
    EXPECT_FALSE(here_->Drive([] { return false; }, absl::InfiniteDuration()));
  };
  Settle();
  ASSERT_TRUE(ear_.why.has_value());
  EXPECT_TRUE(absl::IsCancelled(*ear_.why)) << *ear_.why;
  ASSERT_TRUE(accepted_.why.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*accepted_.why)) << *accepted_.why;
  EXPECT_EQ(here_->flows() + there_->flows(), 0u);
}

using MessengerEndingsDeathTest = MessengerEndingsTest;

TEST_F(MessengerEndingsDeathTest, MessengerThatIsDestroyedInAHandlerSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ear_.opened = [&](Flow) { here_.reset(); };
  EXPECT_DEATH(Settle(), "Messenger destroyed in a handler of its own");
  ear_.opened = nullptr;
}

}  // namespace endings_handler_test
}  // namespace sluice
