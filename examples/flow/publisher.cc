// SPDX-License-Identifier: Apache-2.0
//
// publisher: sends --ticks prices to each program that opens a flow to its end "ticks", each as fast as that one reads.
//
//   publisher --listen=127.0.0.1:7480 --ticks=1000000
#include <cstdio>
#include <map>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/time.h"
#include "examples/flow/ticks.h"
#include "middleware/api/messenger.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7480", "host:port to listen at; port 0 takes a free one");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint64_t, ticks, 1'000'000, "how many each subscriber gets");
ABSL_FLAG(int, subscribers, 0, "ends when so many have had theirs; 0: never");

namespace sluice::examples::flow {
namespace {

// One handler for all flows: what it knows of each stands under the flow's id.
class Publisher final : public FlowHandler {
 public:
  explicit Publisher(uint64_t ticks) : ticks_(ticks) {}

  FlowHandler* Accept(Flow flow, const Offer& offer) {
    std::printf("%s subscribes\n", offer.peer.c_str());
    std::fflush(stdout);
    next_[flow.id()] = {};
    Publish(flow);
    return this;
  }
  void OnWritable(Flow flow) override { Publish(flow); }
  void OnMessage(Flow, std::span<const std::byte>) override {}  // nothing is expected
  void OnClosed(Flow flow, const absl::Status& why, const FlowTotals& totals) override {
    std::printf("%llu of %llu ticks delivered: %s\n",
                static_cast<unsigned long long>(totals.delivered),
                static_cast<unsigned long long>(totals.sent),
                why.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
    std::fflush(stdout);
    next_.erase(flow.id());
    ++served_;
  }
  int served() const { return served_; }

 private:
  // As many as go now: when Send() refuses, OnWritable() follows.
  void Publish(Flow flow) {
    Tick& tick = next_[flow.id()];
    while (tick.number < ticks_) {
      tick.price = 100 + tick.number % 7;
      if (!flow.Send(std::as_bytes(std::span(&tick, 1))).ok()) return;
      ++tick.number;
    }
    flow.Close();
  }

  const uint64_t ticks_;
  std::map<uint64_t, Tick> next_;
  int served_ = 0;
};

int Fail(const char* doing, const absl::Status& status) {
  std::fprintf(stderr, "publisher: %s: %s\n", doing,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

int Main() {
  MessengerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  Publisher publisher(absl::GetFlag(FLAGS_ticks));  // before the messenger: it outlives its flows
  auto messenger = Messenger::Create(options);
  if (!messenger.ok()) return Fail("can't start", messenger.status());
  const absl::Status accepts =
      (*messenger)->Accept(kTicks, FlowOptions(), [&](Flow flow, const Offer& offer) {
        return publisher.Accept(flow, offer);
      });
  if (!accepts.ok()) return Fail("can't accept", accepts);
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*messenger)->Listen(address);
  if (!port.ok()) return Fail("can't listen", port.status());
  // For programs: it says which port it is.
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);

  const int enough = absl::GetFlag(FLAGS_subscribers);
  (*messenger)
      ->Drive([&] { return enough > 0 && publisher.served() >= enough; }, absl::InfiniteDuration());
  return 0;
}

}  // namespace
}  // namespace sluice::examples::flow

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("sends numbered prices to each process that opens a flow to it");
  absl::ParseCommandLine(argc, argv);
  return sluice::examples::flow::Main();
}
