// SPDX-License-Identifier: Apache-2.0
//
// subscriber: reads a publisher's prices to their end, and says whether each came, in order, once.
//
//   subscriber --publisher=127.0.0.1:7480
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/flow/ticks.h"
#include "middleware/api/messenger.h"

ABSL_FLAG(std::string, publisher, "127.0.0.1:7480", "host:port of a publisher");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");
ABSL_FLAG(uint32_t, window, 256, "ticks that may be on their way");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(60), "how long all may take");

namespace sluice::examples::flow {
namespace {

class Subscriber final : public FlowHandler {
 public:
  void OnMessage(Flow flow, std::span<const std::byte> message) override {
    Tick tick;
    if (message.size() != sizeof(tick)) return flow.Close(absl::DataLossError("not a tick"));
    std::memcpy(&tick, message.data(), sizeof(tick));
    if (tick.number != ticks_) return flow.Close(absl::DataLossError("a tick is missing"));
    ++ticks_;
    sum_ += tick.price;
  }
  void OnClosed(Flow, const absl::Status& why, const FlowTotals&) override {
    why_ = why;
    closed_ = true;
  }
  bool closed() const { return closed_; }
  const absl::Status& why() const { return why_; }
  uint64_t ticks() const { return ticks_; }
  double mean() const { return static_cast<double>(sum_) / static_cast<double>(ticks_); }

 private:
  uint64_t ticks_ = 0;
  uint64_t sum_ = 0;
  bool closed_ = false;
  absl::Status why_ = absl::DeadlineExceededError("not done in time");
};

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "subscriber: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

int Main() {
  MessengerOptions options;
  options.device = absl::GetFlag(FLAGS_device);
  Subscriber subscriber;  // before the messenger, whose end tells it of a flow that is left
  auto messenger = Messenger::Create(options);
  if (!messenger.ok()) return Fail(messenger.status());
  const absl::Time start = absl::Now();
  auto flow = (*messenger)
                  ->Open(absl::GetFlag(FLAGS_publisher), kTicks,
                         {.window = absl::GetFlag(FLAGS_window)}, &subscriber);
  if (!flow.ok()) return Fail(flow.status());
  (*messenger)->Drive([&] { return subscriber.closed(); }, absl::GetFlag(FLAGS_timeout));
  if (!subscriber.why().ok()) return Fail(subscriber.why());
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  std::printf("%llu ticks, all in order, mean price %.2f, %.2f million a second\n",
              static_cast<unsigned long long>(subscriber.ticks()), subscriber.mean(),
              static_cast<double>(subscriber.ticks()) / seconds / 1e6);
  return 0;
}

}  // namespace
}  // namespace sluice::examples::flow

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("reads the prices of a publisher");
  absl::ParseCommandLine(argc, argv);
  return sluice::examples::flow::Main();
}
