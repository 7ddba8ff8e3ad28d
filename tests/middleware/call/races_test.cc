// SPDX-License-Identifier: Apache-2.0
//
// Reply, cancel, deadline and the death of either side at random moments: each call ends once, with a status that what happened
// to it explains, and nothing is left behind at either end.
//
//   RACES_SEEDS=2500 bazel-bin/tests/middleware/call/races_test      a million calls
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "proto/error_detail.pb.h"  // any message will do as request and reply
#include "tests/support/fake_endpoint.h"
#include "tests/support/manual_clock.h"
#include "transport/base/error.h"

namespace sluice::call {
namespace races_test {

using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using Text = ErrorDetail;

constexpr Method kUnary("/test.Races/Unary", Streams::kNobody, /*idempotent=*/true);
constexpr Method kBoth("/test.Races/Both", Streams::kBoth);
constexpr int64_t kMs = 1'000'000;
constexpr int kCalls = 400;

// A call at its caller.
struct Caller : ClientStream::Observer {
  void OnReadable() override { readable = true; }
  Text request;
  Text reply;
  ClientStream stream;
  uint64_t id = 0;
  int ended = 0;
  bool cancelled = false;
  bool readable = false;
  absl::Status status;
};

// A call at the server.
struct Served : ServerCall::Observer, base::MailNode {
  Served() {
    run = [](base::MailNode* node) { static_cast<Served*>(node)->call->Finish(absl::OkStatus()); };
  }
  void OnCancelled() override {
    ++cancels;
    // That of another call must not end this one.
    const auto detail = base::DetailOf(call->why_cancelled());
    const bool asked = detail.has_value() && detail->cause() == "the caller cancelled the call";
    if (asked && caller != nullptr) {
      EXPECT_TRUE(caller->cancelled);
    }
  }
  ServerCall* call = nullptr;
  const Caller* caller = nullptr;  // nullptr: one that streams
  bool answered = false;
  int cancels = 0;
};

class World {
 public:
  explicit World(uint32_t seed) : random_(seed) {
    client_options_.host = "h";
    client_options_.port = 1;
    client_options_.max_outstanding_calls = 32;
    client_options_.backoff_min_ns = kMs;
    client_options_.backoff_max_ns = 4 * kMs;
    client_options_.max_reconnect_attempts = 1'000'000;
    client_options_.retry.max_attempts =
        1 + seed % 3;  // most are tried again when their server dies
    client_options_.retry.budget = 1'000'000;
    client_options_.retry.pause_min_ns = kMs;
    fake_.credits = 1 + static_cast<int>(random_() % 16);
    StartServer();
    client_ = std::make_unique<ClientEngine>(client_options_, &clock_, &sluice_random_);
    client_end_ = network_.Create(client_->handler(), &clock_, fake_);
    client_->Attach(client_end_.get());
  }
  ~World() {
    client_->Close();
    client_end_.reset();
    StopServer();
  }

  void Run() {
    std::vector<std::unique_ptr<Caller>>& callers = callers_;
    for (int i = 0; i < kCalls; ++i) {
      callers.push_back(std::make_unique<Caller>());
      callers.back()->request.set_cause(std::to_string(i));
      Start(*callers.back());
      for (uint32_t step = random_() % 4; step > 0; --step) Step(callers);
    }
    for (int quiet = 0; quiet < 200; ++quiet) Step(callers);
    // The second time for what was sent in the pass in which its time was over: the server's clock goes on.
    for (int time = 0; time < 2; ++time) {
      clock_.Advance(60'000 * kMs);
      for (int pass = 0; pass < 300; ++pass) Poll();
    }
    int ok = 0;
    for (const auto& caller : callers) {
      ASSERT_EQ(caller->ended, 1);
      ok += caller->status.ok();
      if (absl::IsCancelled(caller->status)) {
        ASSERT_TRUE(caller->cancelled) << caller->status;
      }
    }
    ASSERT_EQ(client_->outstanding(), 0u);
    // All have been told, and answer.
    for (const auto& served : served_) {
      if (served->answered) continue;
      ASSERT_EQ(served->cancels, 1);
      served->call->Finish(absl::OkStatus());
      served->answered = true;
    }
    ASSERT_EQ(server_->calls_under_way(), 0u);
    ok_ += ok;
  }
  int ok() const { return ok_; }

 private:
  void StartServer() {
    server_ = std::make_unique<ServerEngine>(ServerEngineOptions(), &clock_, nullptr);
    server_end_ = network_.Create(server_->handler(), &clock_, fake_);
    server_->Attach(server_end_.get());
    for (const Method* method : {&kUnary, &kBoth}) {
      MethodHandler handler;
      handler.method = method;
      handler.start = [this](ServerCall* call) {
        served_.push_back(std::make_unique<Served>());
        served_.back()->call = call;
        const auto& number = static_cast<const Text&>(call->request()).cause();
        if (!number.empty()) served_.back()->caller = callers_[std::stoul(number)].get();
        call->set_observer(served_.back().get());
      };
      handler.request = std::make_unique<Text>();
      handler.reply = std::make_unique<Text>();
      ASSERT_TRUE(server_->Register(std::move(handler)).ok());
    }
    ASSERT_TRUE(server_end_->Listen("h", 1).ok());
  }
  void StopServer() {
    server_->Close();
    server_->RunMail();
    for (const auto& served : served_) {
      if (!served->answered) served->call->Finish(absl::OkStatus());
    }
    served_.clear();
    ASSERT_EQ(server_->calls_under_way(), 0u);
    server_end_.reset();
    server_.reset();
  }

  void Start(Caller& caller) {
    CallSpec spec;
    const bool streams = random_() % 3 == 0;
    spec.method = streams ? &kBoth : &kUnary;
    spec.request = &caller.request;
    spec.reply = &caller.reply;
    if (streams) {
      spec.stream = &caller.stream;
      caller.stream.observer = &caller;
    }
    spec.timeout_ns =
        random_() % 4 == 0 ? static_cast<int64_t>(1 + random_() % 20) * kMs : 50'000 * kMs;
    spec.wait_for_ready = random_() % 2;
    spec.argument = &caller;
    spec.done = [](void* argument, const absl::Status& status) {
      auto* ended = static_cast<Caller*>(argument);
      ++ended->ended;
      ended->status = status;
    };
    const absl::Status started = client_->Start(spec, &caller.id);
    if (started.ok()) return;
    caller.ended = 1;
    caller.status = started;
  }

  void Step(std::vector<std::unique_ptr<Caller>>& callers) {
    Caller& caller = *callers[random_() % callers.size()];
    Text text;
    switch (random_() % 16) {
      case 0:
        if (caller.id != 0) caller.cancelled |= client_->Cancel(caller.id);
        break;
      case 1:
        clock_.Advance(static_cast<int64_t>(random_() % 5) * kMs);
        break;
      case 2:
        if (random_() % 8 == 0) client_end_->set_fail_reserves(3);
        if (random_() % 4 == 0) server_->OnNoPlace(/*refused=*/true);
        break;
      case 3:
        if (random_() % 64 == 0) {
          StopServer();
          StartServer();
        }
        break;
      case 4:
      case 5:
        if (caller.stream.call_id != 0) (void)client_->Write(&caller.stream, text);
        break;
      case 6:
        if (caller.stream.call_id != 0) client_->EndWrites(&caller.stream);
        break;
      case 7:
        if (caller.stream.observer != nullptr) client_->Read(&caller.stream, &text);
        break;
      case 8:
      case 9:
        client_->Flush();
        Answer();
        break;
      default:
        Poll();
    }
  }
  // Something happens at the server.
  void Answer() {
    if (served_.empty()) return;
    Served& served = *served_[random_() % served_.size()];
    if (served.answered) return;
    Text text;
    if (served.call->handler().method == &kBoth && random_() % 2 == 0) {
      if (random_() % 2 == 0) {
        (void)served.call->Write(text);
      } else {
        (void)served.call->Read(&text);
      }
      return;
    }
    ServerCall* const call = served.call;
    served.answered = true;
    if (random_() % 2 == 0) {
      call->Post(&served);
    } else {
      call->Finish(random_() % 4 == 0 ? absl::NotFoundError("no") : absl::OkStatus());
    }
  }
  void Poll() {
    client_->Poll();
    server_->Poll();
  }

  std::mt19937 random_;
  testing_support::ManualClock clock_;
  base::SeededRandom sluice_random_{7};
  FakeNetwork network_;
  FakeNetwork::Options fake_;
  ClientEngineOptions client_options_;
  std::unique_ptr<ServerEngine> server_;
  std::unique_ptr<FakeEndpoint> server_end_;
  std::unique_ptr<ClientEngine> client_;
  std::unique_ptr<FakeEndpoint> client_end_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<std::unique_ptr<Served>> served_;
  int ok_ = 0;
};

TEST(RacesTest, EachCallEndsOnceAndNothingIsLeft) {
  const char* const wanted = std::getenv("RACES_SEEDS");
  const int seeds = wanted == nullptr ? 250 : std::atoi(wanted);
  int ok = 0;
  for (int seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    World world(static_cast<uint32_t>(seed));
    world.Run();
    if (HasFatalFailure()) return;
    ok += world.ok();
  }
  EXPECT_GT(ok, seeds * kCalls / 20) << "many are to be answered, or the test shows nothing";
}

}  // namespace races_test
}  // namespace sluice::call
