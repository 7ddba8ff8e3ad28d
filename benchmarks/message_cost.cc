// SPDX-License-Identifier: Apache-2.0
//
// message_cost: a fixed number of 64-byte messages through both ends on one thread, for counting
// instructions (instructions.sh). A count does not depend on what else the machine does, and names
// the function that has grown.
//
// Usage      message_cost WAY BATCH MESSAGES
//   verbs    DC SENDs, BATCH behind a doorbell; completion polled, receive buffer posted again
//   poll     polls of a CQ into which one sender has a ring, nothing there
//   call     protobuf calls over two endpoints, BATCH outstanding: request and reply are one message; through lanes
//            (docs/decisions/0024), as calls of busy programs go where the device promises order
//   sent     the same with lanes switched off: each message is sent, and a completion tells of it
//   raw      messages between two endpoints, there and back
//   flow     messages in a flow, sent back by the receiver's handler
//   sync, callback, coroutine   calls through a Channel, in each style (style_ways.h)
// Method     RunMessages is what is counted (callgrind --toggle-collect); the warm-up has another
//            name.
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "benchmarks/dc_side.h"
#include "benchmarks/endpoint_end.h"
#include "benchmarks/style_ways.h"
#include "benchmarks/way.h"
#include "examples/echo/echo_service.h"
#include "middleware/call/client_engine.h"
#include "middleware/call/server_engine.h"
#include "middleware/flow/flow_engine.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"

namespace sluice::benchmarks {
namespace {

constexpr uint32_t kWarmUpMessages = 4096;  // each buffer and each ring entry once at least

class VerbsWay : public Way {
 public:
  void Run(uint32_t batch) override {
    for (uint32_t i = 0; i < batch; ++i) side_.Add(side_.address(), kMessageBytes);
    side_.Ring();
    for (uint32_t received = 0; received < batch;) {
      const int count = side_.Poll(completions_, kMaxBatch);
      side_.Repost(completions_, count);
      received += static_cast<uint32_t>(count);
    }
  }

 protected:
  DcSide side_{42};
  ibv_wc completions_[kMaxBatch];
};

class PollWay final : public VerbsWay {
 public:
  PollWay() { VerbsWay::Run(1); }
  void Run(uint32_t batch) override {
    for (uint32_t i = 0; i < batch; ++i) side_.Poll(completions_, 1);
  }
};

// The engines of Channel and Server, without the threads that drive them.
class CallWay final : public Way {
 public:
  explicit CallWay(bool lanes) : lanes_(lanes) {
    MethodBinder binder;
    echo_.Bind(binder);
    for (call::MethodHandler& handler : binder.TakeHandlers()) {
      CheckOk(server_.Register(std::move(handler)));
    }
    server_.Attach(server_end_.Open(server_.handler(), lanes_));
    auto port = server_end_.endpoint->Listen("127.0.0.1", 0);
    CheckOk(port.status());
    client_ = std::make_unique<call::ClientEngine>(
        call::ClientEngineOptions{.host = "127.0.0.1", .port = *port}, &clock_, &random_);
    client_->Attach(client_end_.Open(client_->handler(), lanes_));
    client_->Dial();
    while (client_->state() != call::ConnectionState::kUp) {
      Check(client_->last_error().ok(), "connecting");
      PollBoth();
    }
    request_.set_payload(std::string(kMessageBytes, 'x'));
  }
  ~CallWay() override {
    client_->Close();
    server_.Close();
  }

  void Run(uint32_t batch) override {
    call::CallSpec spec;
    spec.method = &kSay;
    spec.request = &request_;
    spec.timeout_ns = 5'000'000'000;
    spec.done = [](void* self, const absl::Status& status) {
      CheckOk(status);
      --static_cast<CallWay*>(self)->outstanding_;
    };
    spec.argument = this;
    for (uint32_t i = 0; i < batch; ++i) {
      spec.reply = &replies_[i];
      CheckOk(client_->Start(spec));
    }
    outstanding_ += batch;
    client_->Flush();
    while (outstanding_ != 0) PollBoth();
  }

  // Their memory is registered on another thread.
  bool Ready() override {
    const auto watches = [](EndpointEnd& end) { return end.endpoint->Counts().lanes_watched == 1; };
    return !lanes_ || (watches(server_end_) && watches(client_end_));
  }

 private:
  void PollBoth() {
    server_.Poll();
    client_->Poll();
  }

  static constexpr call::Method kSay{"/sluice.examples.echo.Echo/Say"};

  const bool lanes_;
  base::RealClock clock_;
  base::SystemRandom random_;
  examples::echo::EchoService echo_;
  call::ServerEngine server_{{}, &clock_, nullptr};
  std::unique_ptr<call::ClientEngine> client_;
  EndpointEnd server_end_;
  EndpointEnd client_end_;
  examples::echo::SayRequest request_;
  examples::echo::SayReply replies_[kMaxBatch];
  uint32_t outstanding_ = 0;
};

// The engines of two Messengers. The window of the flow is the batch.
class FlowWay final : public Way {
 public:
  explicit FlowWay(uint32_t batch) : window_(batch), message_(kMessageBytes, std::byte{'x'}) {
    echo_.Attach(echo_end_.Open(echo_.handler(), /*lanes=*/true));
    sender_.Attach(sender_end_.Open(sender_.handler(), /*lanes=*/true));
    const flow::FlowOptions options = {.window = window_};
    CheckOk(echo_.Accept("echo", options,
                         [this](flow::Flow, const flow::Offer&) { return &returner_; }));
    auto port = echo_end_.endpoint->Listen("127.0.0.1", 0);
    CheckOk(port.status());
    auto opened = sender_.Open("127.0.0.1", *port, "echo", options, &counter_);
    CheckOk(opened.status());
    flow_ = *opened;
    while (!flow_.is_open()) PollBoth();
  }
  ~FlowWay() override {
    sender_.Close();
    echo_.Close();
  }

  void Run(uint32_t batch) override {
    counter_.came = 0;
    for (uint32_t i = 0; i < batch; ++i) CheckOk(flow_.Send(message_));
    sender_end_.endpoint->Flush();
    while (counter_.came != batch) PollBoth();
  }
  bool Ready() override {
    const auto watches = [](EndpointEnd& end) { return end.endpoint->Counts().lanes_watched == 1; };
    return watches(echo_end_) && watches(sender_end_);
  }

 private:
  struct Returner final : flow::FlowHandler {
    void OnMessage(flow::Flow flow, std::span<const std::byte> message) override {
      CheckOk(flow.Send(message));
    }
    void OnClosed(flow::Flow, const absl::Status&, const flow::FlowTotals&) override {}
  };
  struct Counter final : flow::FlowHandler {
    void OnMessage(flow::Flow, std::span<const std::byte>) override { ++came; }
    void OnClosed(flow::Flow, const absl::Status&, const flow::FlowTotals&) override {}
    uint32_t came = 0;
  };
  void PollBoth() {
    echo_.Poll();
    sender_.Poll();
  }

  const uint32_t window_;
  const std::vector<std::byte> message_;
  base::RealClock clock_;
  Returner returner_;
  Counter counter_;
  flow::FlowEngine echo_{{}, &clock_, nullptr};
  flow::FlowEngine sender_{{}, &clock_, nullptr};
  EndpointEnd echo_end_;
  EndpointEnd sender_end_;
  flow::Flow flow_;
};

// What callgrind collects: by its name, so not inlined and not renamed.
extern "C" __attribute__((noinline)) void RunMessages(Way& way, uint32_t batch, uint32_t messages) {
  for (uint32_t done = 0; done < messages; done += batch) way.Run(batch);
}

int Main(const std::string& name, const std::string& batch_text, const std::string& count_text) {
  uint32_t batch = 0, messages = 0;
  std::unique_ptr<Way> way;
  if (absl::SimpleAtoi(batch_text, &batch) && absl::SimpleAtoi(count_text, &messages) &&
      batch >= 1 && batch <= kMaxBatch && messages % batch == 0) {
    if (name == "verbs") way = std::make_unique<VerbsWay>();
    if (name == "poll") way = std::make_unique<PollWay>();
    if (name == "call") way = std::make_unique<CallWay>(/*lanes=*/true);
    if (name == "sent") way = std::make_unique<CallWay>(/*lanes=*/false);
    if (name == "flow") way = std::make_unique<FlowWay>(batch);
    if (way == nullptr) way = MakeStyleWay(name);
  }
  if (way == nullptr) {
    std::fprintf(
        stderr,
        "usage: message_cost verbs|poll|call|sent|raw|flow|sync|callback|coroutine BATCH MESSAGES\n"
        "BATCH: 1 to %u; MESSAGES: a multiple of it\n",
        kMaxBatch);
    return 2;
  }
  for (uint32_t done = 0; done < kWarmUpMessages || !way->Ready(); done += batch) way->Run(batch);
  RunMessages(*way, batch, messages);
  return 0;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) {
  const auto text = [&](int i) { return std::string(i < argc ? argv[i] : ""); };
  return sluice::benchmarks::Main(text(1), text(2), text(3));
}
