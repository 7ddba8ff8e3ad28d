// SPDX-License-Identifier: Apache-2.0
//
// echo_demo: starts echo_server as a process of its own, calls it from this one for a while, and
// reports. Exit code 1 if any call failed. What a client needs is Connect(), EchoClient and Say()
// below; the rest is counting.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "tools/capability_use.h"
#include "tools/child_process.h"
#include "tools/latency_report.h"
#include "transport/base/clock.h"
#include "transport/base/histogram.h"

ABSL_FLAG(absl::Duration, duration, absl::Seconds(5), "how long to call");
ABSL_FLAG(uint32_t, payload_bytes, 64, "size of what is said");
ABSL_FLAG(std::string, device, "auto",
          "RDMA device of both processes: auto, or a name that sluice_info shows");

namespace sluice::examples::echo {
namespace {

constexpr absl::Duration kServerStart = absl::Seconds(30);
constexpr absl::Duration kCallTimeout = absl::Seconds(2);

int Fail(const char* doing, const absl::Status& status) {
  std::fprintf(stderr, "echo_demo: %s: %s\n", doing,
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

// One line that is written over on a terminal; else a line per second.
class Progress {
 public:
  explicit Progress(int64_t start_ns) : start_ns_(start_ns), next_ns_(start_ns + Period()) {}

  void Show(int64_t now_ns, uint64_t calls) {
    if (now_ns < next_ns_) return;
    next_ns_ = now_ns + Period();
    const double seconds = static_cast<double>(now_ns - start_ns_) / 1e9;
    std::printf("%s%5.1f s  %9u calls  %8.0f a second%s", terminal_ ? "\r" : "", seconds,
                static_cast<unsigned>(calls), static_cast<double>(calls) / seconds,
                terminal_ ? " " : "\n");
    std::fflush(stdout);
    shown_ = true;
  }
  void End() {
    if (terminal_ && shown_) std::printf("\n");
  }

 private:
  int64_t Period() const { return terminal_ ? 100'000'000 : 1'000'000'000; }

  const bool terminal_ = isatty(STDOUT_FILENO) != 0;
  const int64_t start_ns_;
  int64_t next_ns_;
  bool shown_ = false;
};

struct Outcome {
  uint64_t calls = 0;
  uint64_t failed = 0;
  absl::Status first_failure;
  double seconds = 0;
  base::Histogram latencies_ns;
};

Outcome CallForAWhile(const EchoClient& client, absl::Duration duration, uint32_t payload_bytes) {
  constexpr uint64_t kMaxFailures =
      1000;  // a broken connection fails fast; no need to see millions of it
  Outcome outcome;
  base::RealClock clock;
  SayRequest request;
  request.set_payload(std::string(payload_bytes, 'x'));
  SayReply reply;
  CallContext context(kCallTimeout);
  const int64_t start_ns = clock.NowNs();
  const int64_t end_ns = start_ns + absl::ToInt64Nanoseconds(duration);
  Progress progress(start_ns);
  int64_t now_ns = start_ns;
  while (now_ns < end_ns && outcome.failed < kMaxFailures) {
    const absl::Status status = client.Say(context, request, &reply);
    const int64_t ended_ns = clock.NowNs();
    ++outcome.calls;
    if (status.ok() && reply.payload() == request.payload()) {
      outcome.latencies_ns.Record(ended_ns - now_ns);
    } else if (outcome.failed++ == 0) {
      outcome.first_failure =
          status.ok() ? absl::DataLossError("the answer is not what was said") : status;
    }
    now_ns = ended_ns;
    progress.Show(now_ns, outcome.calls);
  }
  progress.End();
  outcome.seconds = static_cast<double>(now_ns - start_ns) / 1e9;
  return outcome;
}

void Print(const Outcome& outcome, uint32_t payload_bytes, const Channel& channel) {
  std::printf("\ncalls made:   %u\nfailed calls: %u\n", static_cast<unsigned>(outcome.calls),
              static_cast<unsigned>(outcome.failed));
  std::printf("rate:         %.0f calls a second (%u-byte payload, one call at a time)\n",
              static_cast<double>(outcome.calls) / outcome.seconds, payload_bytes);
  std::printf("round trip:   %s\n%s", tools::PercentileLine(outcome.latencies_ns).c_str(),
              tools::HistogramText(outcome.latencies_ns).c_str());
  std::printf("\ndevice: %s\n%s", channel.device_choice().c_str(),
              tools::CapabilityText(channel.capabilities()).c_str());
}

int Run(absl::Duration duration, uint32_t payload_bytes, const std::string& device) {
  auto server = tools::ChildProcess::Start(
      {tools::PathBesideThisProgram("echo_server"), "--listen=127.0.0.1:0", "--device=" + device});
  if (!server.ok()) return Fail("no server", server.status());
  auto address = tools::ListeningAddress(**server, kServerStart);
  if (!address.ok()) return Fail("no server", address.status());
  std::printf("server: process %d, listening on %s; client: process %d\n", (*server)->pid(),
              address->c_str(), getpid());

  ChannelOptions options;
  options.device = device;
  auto channel = Channel::Connect(*address, options);
  if (!channel.ok()) return Fail("no connection", channel.status());
  const Outcome outcome = CallForAWhile(EchoClient(*channel), duration, payload_bytes);
  Print(outcome, payload_bytes, **channel);
  channel->reset();

  (*server)->Signal(SIGTERM);
  auto exit_code = (*server)->Wait(absl::Seconds(10));
  if (!exit_code.ok()) return Fail("the server does not end", exit_code.status());
  if (*exit_code != 0) {
    std::fprintf(stderr, "echo_demo: the server ended with exit code %d\n", *exit_code);
    return 1;
  }
  if (outcome.failed > 0) return Fail("the first failed call", outcome.first_failure);
  if (outcome.calls == 0)
    return Fail("nothing shown",
                absl::InvalidArgumentError("--duration is too short for one call"));
  return 0;
}

}  // namespace
}  // namespace sluice::examples::echo

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("shows a protobuf service called from one process to another");
  absl::ParseCommandLine(argc, argv);
  return sluice::examples::echo::Run(absl::GetFlag(FLAGS_duration),
                                     absl::GetFlag(FLAGS_payload_bytes),
                                     absl::GetFlag(FLAGS_device));
}
