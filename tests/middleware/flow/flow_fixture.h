// SPDX-License-Identifier: Apache-2.0
//
// Ends of flows over the fake network: an engine with its endpoint, and a handler that writes down what it hears.
#ifndef SLUICE_TESTS_MIDDLEWARE_FLOW_FLOW_FIXTURE_H_
#define SLUICE_TESTS_MIDDLEWARE_FLOW_FLOW_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "middleware/flow/flow_engine.h"
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"

namespace sluice::flow {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::ManualClock;

inline std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

struct Ear final : FlowHandler {
  void OnOpen(Flow which) override {
    ++opened;
    flow = which;
    if (on_open) on_open();
  }
  void OnMessage(Flow which, std::span<const std::byte> bytes) override {
    EXPECT_EQ(closed, 0);
    flow = which;
    heard.emplace_back(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (on_message) on_message();
  }
  void OnWritable(Flow) override {
    EXPECT_EQ(closed, 0);
    ++writable;
    if (on_writable) on_writable();
  }
  void OnDelivered(Flow, uint64_t total) override {
    ++reports;
    delivered = total;
    if (on_delivered) on_delivered();
  }
  void OnClosed(Flow which, const absl::Status& why, const FlowTotals& all) override {
    EXPECT_EQ(++closed, 1) << "the last call, once";
    EXPECT_TRUE(which == flow || flow == Flow());
    EXPECT_FALSE(which.is_open());
    status = why;
    totals = all;
    if (on_closed) on_closed();
  }
  // Until it is refused.
  int SendAll(const std::string& text, int most = 1'000'000) {
    int sent = 0;
    while (sent < most && flow.Send(BytesOf(text)).ok()) ++sent;
    return sent;
  }

  Flow flow;
  int opened = 0;
  int writable = 0;
  int reports = 0;
  int closed = 0;
  uint64_t delivered = 0;
  absl::Status status;
  FlowTotals totals;
  std::vector<std::string> heard;
  std::function<void()> on_open, on_message, on_writable, on_delivered, on_closed;
};

struct Node {
  Node(FakeNetwork* network, ManualClock* clock, FakeNetwork::Options fake = {},
       FlowEngineOptions options = {})
      : engine(options, clock, nullptr) {
    endpoint = network->Create(engine.handler(), clock, fake);
    engine.Attach(endpoint.get());
  }
  FlowEngine engine;
  std::unique_ptr<FakeEndpoint> endpoint;
};

// Node b listens at "b:1" and has an end "end"; node a opens.
class FlowTest : public ::testing::Test {
 protected:
  void Start() {
    a_ = std::make_unique<Node>(&network_, &clock_, fake_, engine_options_);
    b_ = std::make_unique<Node>(&network_, &clock_, fake_, engine_options_);
    ASSERT_TRUE(b_->endpoint->Listen("b", 1).ok());
    ASSERT_TRUE(b_->engine
                    .Accept("end", accept_options_,
                            [this](Flow flow, const Offer&) {
                              ears_.push_back(std::make_unique<Ear>());
                              ears_.back()->flow = flow;
                              if (on_offer_) on_offer_(ears_.back().get());
                              return ears_.back().get();
                            })
                    .ok());
  }
  void Open(Ear* ear, FlowOptions options = {}, const std::string& name = "end") {
    auto flow = a_->engine.Open("b", 1, name, options, ear);
    ASSERT_TRUE(flow.ok()) << flow.status();
    ear->flow = *flow;
  }
  void Settle() {
    for (int quiet = 0; quiet < 3;) {
      const int done = (a_ ? a_->engine.Poll() : 0) + (b_ ? b_->engine.Poll() : 0);
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }

  ManualClock clock_;
  FakeNetwork network_;
  FakeNetwork::Options fake_;
  FlowEngineOptions engine_options_;
  FlowOptions accept_options_;
  std::function<void(Ear*)> on_offer_;
  std::vector<std::unique_ptr<Ear>> ears_;  // of b, in the order of offers
  std::unique_ptr<Node> a_, b_;
};

}  // namespace sluice::flow

#endif  // SLUICE_TESTS_MIDDLEWARE_FLOW_FLOW_FIXTURE_H_
