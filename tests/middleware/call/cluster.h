// SPDX-License-Identifier: Apache-2.0
//
// Cluster: one client engine and several server engines on one thread, over the fake network and a manual clock.
// Server i listens at "s<i>:1", and answers with its number, after it has noted the call.
#ifndef SLUICE_TESTS_MIDDLEWARE_CALL_CLUSTER_H_
#define SLUICE_TESTS_MIDDLEWARE_CALL_CLUSTER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "proto/metadata.pb.h"
#include "tests/support/fake_endpoint.h"
#include "tests/support/kept_log.h"
#include "tests/support/manual_clock.h"
#include "transport/base/error.h"

namespace sluice::call {

using Text = ErrorDetail;

inline constexpr Method kOnce("/test.Service/Once");
inline constexpr Method kAnyTimes("/test.Service/AnyTimes", Streams::kNobody, /*idempotent=*/true);
inline constexpr Method kHold("/test.Service/Hold", Streams::kNobody, /*idempotent=*/true);
inline constexpr int64_t kMs = 1'000'000;

struct Outcome {
  Text request;
  Text reply;
  std::string reply_metadata;
  int ended = 0;
  absl::Status status = absl::UnknownError("has not ended");
};

class Cluster : public ::testing::Test {
 protected:
  struct Node {
    std::unique_ptr<ServerEngine> engine;
    std::unique_ptr<testing_support::FakeEndpoint> end;
    int index = 0;
    absl::Status answer;                // of kOnce and kAnyTimes
    std::vector<std::string> attempts;  // as each call's metadata says; empty: the first
    std::vector<ServerCall*> held;      // of kHold
    std::function<void()> inside;       // what the handlers of the others do, if anything
  };

  Cluster() {
    options_.max_message_bytes = 4096;
    options_.backoff_min_ns = 10 * kMs;
    options_.backoff_max_ns = 80 * kMs;
    options_.retry.max_attempts = 3;
  }
  void TearDown() override {
    if (client_ != nullptr) client_->Close();
    for (auto& node : nodes_) {
      if (node->engine == nullptr) continue;
      node->engine->Close();
      for (ServerCall* call : node->held) call->Finish(absl::OkStatus());
    }
  }

  static ServerAddress AddressOf(int index) { return {"s" + std::to_string(index), 1}; }

  void StartServer(int index) {
    while (nodes_.size() <= static_cast<size_t>(index)) {
      nodes_.push_back(std::make_unique<Node>());
      nodes_.back()->index = static_cast<int>(nodes_.size()) - 1;
    }
    Node* node = nodes_[index].get();
    node->engine = std::make_unique<ServerEngine>(server_options_, &clock_, &server_log_);
    node->end = network_.Create(node->engine->handler(), &clock_, fake_options_);
    node->engine->Attach(node->end.get());
    for (const Method* method : {&kOnce, &kAnyTimes, &kHold}) {
      MethodHandler handler;
      handler.method = method;
      handler.service = node;
      handler.run = [](void* self, const Incoming& incoming, const google::protobuf::MessageLite&,
                       google::protobuf::MessageLite* reply) {
        auto* of = static_cast<Node*>(self);
        of->attempts.push_back(AttemptOf(incoming));
        if (of->inside) of->inside();
        static_cast<Text*>(reply)->set_syndrome(of->index);
        return of->answer;
      };
      if (method == &kHold) {
        handler.start = [node](ServerCall* call) {
          node->attempts.push_back(AttemptOf(call->incoming()));
          static_cast<Text*>(call->reply())->set_syndrome(node->index);
          node->held.push_back(call);
        };
      }
      handler.request = std::make_unique<Text>();
      handler.reply = std::make_unique<Text>();
      ASSERT_TRUE(node->engine->Register(std::move(handler)).ok());
    }
    ASSERT_TRUE(node->end->Listen(AddressOf(index).host, 1).ok());
  }
  // Its process is gone: nothing of it answers, and its number can be started again.
  void KillServer(int index) {
    Node* node = nodes_[index].get();
    node->end->Kill();
    node->engine->Close();
    for (ServerCall* call : node->held) call->Finish(absl::OkStatus());
    node->held.clear();
    node->end.reset();
    node->engine.reset();
  }

  void Connect(int servers) {
    for (int i = 0; i < servers; ++i) StartServer(i);
    ConnectClient(servers);
  }
  void ConnectClient(int servers) {
    client_ = std::make_unique<ClientEngine>(options_, &clock_, &random_, &client_log_);
    client_end_ = network_.Create(client_->handler(), &clock_, fake_options_);
    client_->Attach(client_end_.get());
    std::vector<ServerAddress> addresses;
    for (int i = 0; i < servers; ++i) addresses.push_back(AddressOf(i));
    client_->SetServers(addresses);
    client_->Dial();
    Settle();
  }

  // Until nothing moves any more at this time; long enough for the client to look at its clock.
  void Settle() {
    for (int quiet = 0; quiet < 40;) {
      int done = client_->Poll();
      for (auto& node : nodes_) {
        if (node->engine != nullptr) done += node->engine->Poll();
      }
      quiet = done > 0 ? 0 : quiet + 1;
    }
  }
  void Advance(int64_t ns) {
    clock_.Advance(ns);
    Settle();
  }

  absl::Status Start(Outcome* outcome, const Method& method = kOnce,
                     int64_t timeout_ns = 60'000 * kMs, bool wait_for_ready = false,
                     std::string_view metadata = {}) {
    CallSpec spec;
    spec.method = &method;
    spec.request = &outcome->request;
    spec.reply = &outcome->reply;
    spec.timeout_ns = timeout_ns;
    spec.wait_for_ready = wait_for_ready;
    spec.metadata = metadata;
    spec.argument = outcome;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Outcome*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    return client_->Start(spec, &last_id_);
  }
  // Calls, and says who answered; -1: an error.
  int Call(const Method& method = kOnce) {
    Outcome& outcome = outcomes_.emplace_back();
    const absl::Status started = Start(&outcome, method);
    if (!started.ok()) return -1;
    Settle();
    EXPECT_EQ(outcome.ended, 1);
    return outcome.status.ok() ? static_cast<int>(outcome.reply.syndrome()) : -1;
  }
  void FinishHeld(int index, const absl::Status& status = absl::OkStatus()) {
    std::vector<ServerCall*> held;
    held.swap(nodes_[index]->held);
    for (ServerCall* call : held) call->Finish(status);
    Settle();
  }

  static std::string AttemptOf(const Incoming& incoming) {
    MetadataEntries entries;
    EXPECT_TRUE(entries.ParseFromArray(incoming.metadata.data(),
                                       static_cast<int>(incoming.metadata.size())));
    for (const auto& entry : entries.entries()) {
      if (entry.key() == kAttemptKey) return entry.value();
    }
    return "";
  }

  testing_support::ManualClock clock_;
  base::SeededRandom random_{7};
  testing_support::KeptLog client_log_;
  testing_support::KeptLog server_log_;
  testing_support::FakeNetwork network_;
  testing_support::FakeNetwork::Options fake_options_;
  ServerEngineOptions server_options_;
  ClientEngineOptions options_;
  std::deque<Outcome> outcomes_;  // outlive the calls
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<ClientEngine> client_;
  std::unique_ptr<testing_support::FakeEndpoint> client_end_;
  uint64_t last_id_ = 0;
};

}  // namespace sluice::call

#endif  // SLUICE_TESTS_MIDDLEWARE_CALL_CLUSTER_H_
