// SPDX-License-Identifier: Apache-2.0
//
// Messengers over the fake network: driving, sleeping, the inbox, what is refused.
#include "middleware/api/messenger.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "middleware/api/flow_inbox.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace messenger_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;

constexpr absl::Duration kLong = absl::Seconds(30);

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string TextOf(std::span<const std::byte> bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// Sends numbers from 0 on, whenever it may, and closes.
struct Counter final : FlowHandler {
  explicit Counter(int numbers) : left(numbers) {}
  void OnOpen(Flow flow) override { OnWritable(flow); }
  void OnWritable(Flow flow) override {
    while (left > 0 && flow.Send(BytesOf(std::to_string(next))).ok()) {
      ++next;
      --left;
    }
    if (left == 0) flow.Close();
  }
  void OnMessage(Flow, std::span<const std::byte>) override {}
  void OnClosed(Flow, const absl::Status& status, const FlowTotals& all) override {
    why = status;
    totals = all;
    closed = true;
  }
  int left;
  int next = 0;
  bool closed = false;
  absl::Status why;
  FlowTotals totals;
};

struct Reader final : FlowHandler {
  void OnMessage(Flow, std::span<const std::byte> message) override {
    EXPECT_EQ(TextOf(message), std::to_string(heard));
    ++heard;
  }
  void OnClosed(Flow, const absl::Status&, const FlowTotals&) override { closed = true; }
  int heard = 0;
  bool closed = false;
};

class MessengerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Messenger> Make(const MessengerOptions& options = {},
                                  FakeEndpoint** endpoint = nullptr) {
    auto messenger = Messenger::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), endpoint), options);
    EXPECT_TRUE(messenger.ok()) << messenger.status();
    return *std::move(messenger);
  }
  FakeNetwork network_;
};

TEST_F(MessengerTest, TwoThatAreDrivenByThreadsOfTheirOwn) {
  auto there = Make();
  auto here = Make();
  Reader reader;
  ASSERT_TRUE(there->Accept("end", {}, [&](Flow, const Offer&) { return &reader; }).ok());
  ASSERT_TRUE(there->Listen("h:1").ok());
  std::thread other([&] { EXPECT_TRUE(there->Drive([&] { return reader.closed; }, kLong)); });
  Counter counter(5000);
  ASSERT_TRUE(here->Open("h:1", "end", {}, &counter).ok());
  EXPECT_TRUE(here->Drive([&] { return counter.closed; }, kLong));
  other.join();
  EXPECT_TRUE(counter.why.ok()) << counter.why;
  EXPECT_EQ(reader.heard, 5000);
  EXPECT_EQ(counter.totals.delivered, 5000u);
  EXPECT_EQ(here->flows() + there->flows(), 0u);
}

TEST_F(MessengerTest, InboxIsAskedForMessagesAndHoldsTheSenderBack) {
  auto there = Make();
  auto here = Make();
  FlowInbox inbox(/*window=*/8);
  ASSERT_TRUE(
      there->Accept("end", inbox.options(), [&](Flow, const Offer&) { return &inbox; }).ok());
  ASSERT_TRUE(there->Listen("h:1").ok());
  Counter counter(100);
  ASSERT_TRUE(here->Open("h:1", "end", {}, &counter).ok());
  const auto settle = [&] {
    for (int quiet = 0; quiet < 3;) quiet = here->Poll() + there->Poll() > 0 ? 0 : quiet + 1;
  };
  settle();
  EXPECT_EQ(counter.next, 8) << "nobody reads";
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(inbox.ready()) << i;
    EXPECT_EQ(TextOf(inbox.Front()), std::to_string(i));
    inbox.Pop();
    settle();
    EXPECT_LE(counter.next, i + 1 + 8);
  }
  EXPECT_FALSE(inbox.ready());
  EXPECT_TRUE(inbox.closed());
  EXPECT_TRUE(inbox.why().ok());
}

TEST_F(MessengerTest, DriveEndsAtItsTimeAndWakeEndsASleep) {
  FakeEndpoint* endpoint = nullptr;
  auto messenger = Make({}, &endpoint);
  EXPECT_FALSE(messenger->Drive([] { return false; }, absl::Milliseconds(1)));
  std::atomic<bool> done{false};
  std::thread other([&] {
    endpoint->WaitUntilArmed();
    done = true;
    messenger->Wake();
  });
  EXPECT_TRUE(messenger->Drive([&] { return done.load(); }, absl::InfiniteDuration()));
  other.join();
}

TEST_F(MessengerTest, WorkThatAPollLeftKeepsItFromSleeping) {
  Reader reader;  // handlers outlive what tells them
  Counter counter(0);
  Counter second(0);
  auto there = Make();
  auto here = Make();
  ASSERT_TRUE(there->Accept("end", {}, [&](Flow, const Offer&) { return &reader; }).ok());
  ASSERT_TRUE(there->Listen("h:1").ok());
  auto flow = here->Open("h:1", "end", {}, &counter);
  ASSERT_TRUE(flow.ok());
  for (int i = 0; i < 4; ++i) {
    here->Poll();
    there->Poll();
  }
  ASSERT_TRUE(here->Open("h:1", "end", {}, &second).ok());
  EXPECT_FALSE(here->PrepareToSleep()) << "the opening is not said yet";
}

TEST_F(MessengerTest, CloseEndsTheFlowsOnBothSides) {
  auto there = Make();
  auto here = Make();
  Reader reader;
  ASSERT_TRUE(there->Accept("end", {}, [&](Flow, const Offer&) { return &reader; }).ok());
  ASSERT_TRUE(there->Listen("h:1").ok());
  Counter counter(1'000'000'000);
  ASSERT_TRUE(here->Open("h:1", "end", {}, &counter).ok());
  for (int i = 0; i < 20; ++i) {
    here->Poll();
    there->Poll();
  }
  EXPECT_GT(reader.heard, 0);
  here->Close();
  EXPECT_TRUE(absl::IsCancelled(counter.why)) << counter.why;
  there->Poll();
  EXPECT_TRUE(reader.closed);
}

TEST_F(MessengerTest, WhatIsNotAllowedIsRefused) {
  MessengerOptions options;
  options.max_flows = 0;
  EXPECT_EQ(
      Messenger::CreateOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()), options)
          .status()
          .code(),
      absl::StatusCode::kInvalidArgument);
  auto messenger = Make();
  Reader reader;
  const auto none = [](Flow, const Offer&) { return nullptr; };
  for (const char* address : {"h", "h:0", ":"}) {
    EXPECT_EQ(messenger->Open(address, "end", {}, &reader).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  EXPECT_EQ(messenger->Open("h:1", "", {}, &reader).status().code(),
            absl::StatusCode::kInvalidArgument);
  for (uint32_t window : {0u, flow::kMaxWindow + 1}) {
    const absl::Status status = messenger->Open("h:1", "end", {.window = window}, &reader).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find("window is"), std::string::npos) << status;
    EXPECT_EQ(messenger->Accept("end", {.window = window}, none).code(),
              absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(messenger->Open("h:1", "end", {.priority = static_cast<Priority>(3)}, &reader)
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace messenger_test
}  // namespace sluice
