// SPDX-License-Identifier: Apache-2.0
//
// Messengers in two processes over the software NIC. The other one is this program again, with "--serve": it sends back
// what comes in each flow, and writes its port to standard output.
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "middleware/api/messenger.h"
#include "tools/child_process.h"

namespace sluice {
namespace {

constexpr absl::Duration kLong = absl::Seconds(50);  // a hang; nothing waits for it otherwise

MessengerOptions Soft() {
  MessengerOptions options;
  options.device = "softdc0";
  return options;
}

// What can't be sent back at once waits here: at most a window of messages a flow.
struct Echo final : FlowHandler {
  void OnMessage(Flow flow, std::span<const std::byte> message) override {
    if (waiting.empty() && flow.Send(message).ok()) return flow.Consume();
    waiting.emplace_back(message.begin(), message.end());
  }
  void OnWritable(Flow flow) override {
    for (; !waiting.empty() && flow.Send(waiting.front()).ok(); waiting.pop_front()) flow.Consume();
  }
  void OnClosed(Flow, const absl::Status&, const FlowTotals&) override { delete this; }
  std::deque<std::vector<std::byte>> waiting;
};

int Serve() {
  auto messenger = Messenger::Create(Soft());
  if (!messenger.ok()) return 1;
  const absl::Status accepts =
      (*messenger)->Accept("echo", {.manual_consume = true}, [](Flow, const Offer&) {
        return new Echo;
      });
  auto port = (*messenger)->Listen("127.0.0.1:0");
  if (!accepts.ok() || !port.ok()) return 1;
  printf("listening on 127.0.0.1:%u\n", *port);
  fflush(stdout);
  (*messenger)->Drive([] { return false; }, absl::InfiniteDuration());  // until it is killed
  return 0;
}

struct Pinger final : FlowHandler {
  void OnOpen(Flow flow) override { OnWritable(flow); }
  void OnWritable(Flow flow) override {
    while (sent < total) {
      const uint64_t message[2] = {flow.id(), sent};
      if (!flow.Send(std::as_bytes(std::span(message))).ok()) return;
      ++sent;
    }
  }
  void OnMessage(Flow flow, std::span<const std::byte> bytes) override {
    uint64_t message[2] = {};
    ASSERT_EQ(bytes.size(), sizeof(message));
    memcpy(message, bytes.data(), sizeof(message));
    ASSERT_EQ(message[0], flow.id());
    ASSERT_EQ(message[1], heard) << "lost, repeated or out of order";
    if (++heard == total) flow.Close();
  }
  void OnClosed(Flow, const absl::Status& status, const FlowTotals& all) override {
    closed = true;
    why = status;
    totals = all;
  }
  uint64_t total = 0;
  uint64_t sent = 0;
  uint64_t heard = 0;
  bool closed = false;
  absl::Status why;
  FlowTotals totals;
};

class MessengerProcessesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto child = tools::ChildProcess::Start({"/proc/self/exe", "--serve"});
    ASSERT_TRUE(child.ok()) << child.status();
    server_ = *std::move(child);
    auto address = tools::ListeningAddress(*server_, kLong);
    ASSERT_TRUE(address.ok()) << address.status();
    address_ = *address;
    auto messenger = Messenger::Create(Soft());
    ASSERT_TRUE(messenger.ok()) << messenger.status();
    messenger_ = *std::move(messenger);
  }
  std::unique_ptr<tools::ChildProcess> server_;
  std::string address_;
  std::unique_ptr<Messenger> messenger_;
};

TEST_F(MessengerProcessesTest, ManyFlowsOfAllPrioritiesAtOnce) {
  std::vector<Pinger> pingers(30);
  for (size_t i = 0; i < pingers.size(); ++i) {
    pingers[i].total = 500;
    const FlowOptions options = {.priority = static_cast<Priority>(i % 3),
                                 .window = 1 + static_cast<uint32_t>(i)};
    ASSERT_TRUE(messenger_->Open(address_, "echo", options, &pingers[i]).ok());
  }
  EXPECT_TRUE(messenger_->Drive(
      [&] {
        return std::all_of(pingers.begin(), pingers.end(),
                           [](const Pinger& p) { return p.closed; });
      },
      kLong));
  for (const Pinger& pinger : pingers) {
    EXPECT_TRUE(pinger.why.ok()) << pinger.why;
    EXPECT_EQ(pinger.heard, 500u);
    EXPECT_EQ(pinger.totals.delivered, 500u);
  }
  EXPECT_EQ(messenger_->flows(), 0u);
}

TEST_F(MessengerProcessesTest, PeerThatIsKilledEndsItsFlowsWithWhatIsKnown) {
  Pinger pinger;
  pinger.total = UINT64_MAX;
  ASSERT_TRUE(messenger_->Open(address_, "echo", {}, &pinger).ok());
  ASSERT_TRUE(messenger_->Drive([&] { return pinger.heard > 100; }, kLong));
  server_->Signal(SIGKILL);
  ASSERT_TRUE(messenger_->Drive([&] { return pinger.closed; }, kLong));
  EXPECT_TRUE(absl::IsUnavailable(pinger.why)) << pinger.why;
  EXPECT_NE(std::string(pinger.why.message()).find("are known to be delivered"), std::string::npos);
  EXPECT_GE(pinger.totals.delivered, 100u) << "what came back was delivered";
  EXPECT_LE(pinger.totals.delivered, pinger.totals.sent);
}

TEST_F(MessengerProcessesTest, EndThatIsNotThereAndPortWhereNobodyListens) {
  Pinger nobody;
  Pinger nowhere;
  ASSERT_TRUE(messenger_->Open(address_, "no such end", {}, &nobody).ok());
  ASSERT_TRUE(messenger_->Open("127.0.0.1:9", "echo", {}, &nowhere).ok());
  ASSERT_TRUE(messenger_->Drive([&] { return nobody.closed && nowhere.closed; }, kLong));
  EXPECT_TRUE(absl::IsNotFound(nobody.why)) << nobody.why;
  EXPECT_TRUE(absl::IsUnavailable(nowhere.why)) << nowhere.why;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--serve") == 0) return sluice::Serve();
  // A NIC of our own: no other test or program of this user is on it.
  setenv("SOFTDC_DOMAIN", ("messengers-" + std::to_string(getpid())).c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
