// SPDX-License-Identifier: Apache-2.0
//
// docs/errors.md, "Flows": over the network in memory.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "middleware/api/messenger.h"
#include "tests/errors/catalogue.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace {

using testing_support::ExpectCatalogued;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;

struct End final : FlowHandler {
  void OnOpen(Flow flow) override { open = flow; }
  void OnMessage(Flow, std::span<const std::byte>) override {}
  void OnClosed(Flow, const absl::Status& status, const FlowTotals&) override { why = status; }
  std::optional<Flow> open;
  std::optional<absl::Status> why;
};

class FlowErrors : public ::testing::Test {
 protected:
  FlowErrors() : there_(Make(&there_end_)), here_(Make()) {
    EXPECT_TRUE(
        there_->Accept("end", {.window = 8}, [&](Flow, const Offer&) { return &accepted_; }).ok());
    EXPECT_TRUE(there_->Listen("h:1").ok());
  }
  std::unique_ptr<Messenger> Make(FakeEndpoint** end = nullptr, MessengerOptions options = {}) {
    return *Messenger::CreateOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), end),
                                options);
  }
  void PollUntil(const std::function<bool()>& done) {
    for (int i = 0; i < 1'000'000 && !done(); ++i) {
      here_->Poll();
      there_->Poll();
    }
    ASSERT_TRUE(done());
  }
  Flow MustOpen(FlowOptions options = {}) {
    auto flow = here_->Open("h:1", "end", options, &mine_);
    EXPECT_TRUE(flow.ok()) << flow.status();
    PollUntil([&] { return mine_.open.has_value(); });
    return *flow;
  }

  FakeNetwork network_;
  FakeEndpoint* there_end_ = nullptr;
  End accepted_, mine_;
  std::unique_ptr<Messenger> there_, here_;
};

TEST_F(FlowErrors, EndThatNobodyAccepts) {
  ASSERT_TRUE(here_->Open("h:1", "another end", {}, &mine_).ok());
  PollUntil([&] { return mine_.why.has_value(); });
  ExpectCatalogued("flow-no-end", *mine_.why);
}

TEST_F(FlowErrors, SendingTooMuchAndTooLarge) {
  MessengerOptions small;
  small.limits.max_large_message_bytes = 100'000;
  here_ = Make(nullptr, small);
  Flow flow = MustOpen();
  const std::vector<std::byte> large(1 << 20);
  ExpectCatalogued("flow-size", flow.Send(large));
  absl::Status last;
  for (int i = 0; i < 1000 && last.ok(); ++i) last = flow.Send(std::vector<std::byte>(1));
  ExpectCatalogued("flow-window", last);
}

TEST_F(FlowErrors, FlowThatIsClosed) {
  Flow flow = MustOpen();
  flow.Close();
  PollUntil([&] { return mine_.why.has_value(); });
  ExpectCatalogued("flow-closed", flow.Send(std::vector<std::byte>(1)));
}

TEST_F(FlowErrors, PeerThatDies) {
  MustOpen();
  there_end_->Kill();
  PollUntil([&] { return mine_.why.has_value(); });
  ExpectCatalogued("flow-ended", *mine_.why);
}

TEST_F(FlowErrors, EndAcceptedTwice) {
  ExpectCatalogued("flow-accepted-twice",
                   there_->Accept("end", {}, [](Flow, const Offer&) { return nullptr; }));
}

TEST_F(FlowErrors, MoreFlowsThanAllowed) {
  MessengerOptions options;
  options.max_flows = 1;
  End first, second;  // ends outlive what tells them
  auto few = Make(nullptr, options);
  ASSERT_TRUE(few->Open("h:1", "end", {}, &first).ok());
  ExpectCatalogued("flow-limit", few->Open("h:1", "end", {}, &second).status());
}

}  // namespace
}  // namespace sluice
