// SPDX-License-Identifier: Apache-2.0
//
// echo_vs_raw: one echo at a time between two pinned processes, three ways, in one run:
//
//   raw    two cache lines, one each way, no library: the floor of this machine
//   verbs  plain DC verbs on softdc: SEND to a DCT, completion queue polled, receive buffers posted again
//   rpc    a protobuf call over Sluice on softdc: generated client, EchoService
//
// Usage      echo_vs_raw [--cpus=0,1] [--repetitions=15] [--size=64] [--seconds=0.2]
// Method     Repetitions of the three alternate, each with two fresh processes. A sample is the time of 8 round
//            trips by one clock reading, over 8; a repetition gives the median of its samples; the line printed is
//            the median of the repetitions, with the lowest and the highest. The first tenth of each repetition is
//            warm-up. The machine should have nothing else to do.
//
// A process of its own is this program with a role: "serve WAY …" prints "listening on ADDRESS", "measure WAY ADDRESS …"
// prints the median.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "benchmarks/dc_side.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"
#include "tools/child_process.h"
#include "tools/command_line.h"
#include "tools/sluice_perf_options.h"
#include "transport/base/clock.h"
#include "transport/base/histogram.h"

namespace sluice::benchmarks {
namespace {

constexpr int kRoundTripsPerSample = 8;
constexpr uint64_t kLeastSamples = 1000;  // also when something else has had the CPU all the time
constexpr uint32_t kMaxSizeBytes = DcSide::kBufferBytes;
constexpr absl::Duration kHang = absl::Seconds(60);
const std::vector<std::string> kWays = {"raw", "verbs", "rpc"};

struct Options {
  std::string cpus = "0,1";
  uint32_t repetitions = 15;
  uint32_t size_bytes = 64;
  absl::Duration time = absl::Milliseconds(200);
};

// The median of `round_trip` in picoseconds (a sample's eighth of a nanosecond counts).
int64_t Measure(const std::function<void()>& round_trip, absl::Duration time) {
  base::RealClock clock;
  base::Histogram samples_ps;
  const int64_t start_ns = clock.NowNs();
  const int64_t measure_ns = start_ns + absl::ToInt64Nanoseconds(time) / 10;
  const int64_t end_ns = start_ns + absl::ToInt64Nanoseconds(time);
  for (int64_t before_ns = start_ns; before_ns < end_ns || samples_ps.count() < kLeastSamples;) {
    for (int i = 0; i < kRoundTripsPerSample; ++i) round_trip();
    const int64_t now_ns = clock.NowNs();
    if (before_ns >= measure_ns) {
      samples_ps.Record((now_ns - before_ns) * (1000 / kRoundTripsPerSample));
    }
    before_ns = now_ns;
  }
  return samples_ps.Quantile(0.5);
}

// ---- raw

struct alignas(128) Line {
  std::atomic<uint64_t> sequence;
  char payload[56];
};
struct RawArea {
  Line to_server;
  Line to_client;
};

RawArea* MapRaw(int fd) {
  void* area =
      mmap(nullptr, sizeof(RawArea), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  Check(area != MAP_FAILED, "mmap");
  return static_cast<RawArea*>(area);
}

void Announce(const std::string& address) {
  std::printf("listening on %s\n", address.c_str());
  std::fflush(stdout);
}

[[noreturn]] void ServeRaw() {
  const int fd = memfd_create("raw", 0);
  Check(fd >= 0 && ftruncate(fd, sizeof(RawArea)) == 0, "memfd_create");
  RawArea* area = MapRaw(fd);
  Announce(absl::StrCat("/proc/", getpid(), "/fd/", fd));
  for (uint64_t sequence = 1;; ++sequence) {
    while (area->to_server.sequence.load(std::memory_order_acquire) != sequence) {
    }
    std::memcpy(area->to_client.payload, area->to_server.payload, sizeof(Line::payload));
    area->to_client.sequence.store(sequence, std::memory_order_release);
  }
}

int64_t MeasureRaw(const std::string& address, const Options& options) {
  const int fd = open(address.c_str(), O_RDWR | O_CLOEXEC);
  Check(fd >= 0, "opening the shared lines");
  RawArea* area = MapRaw(fd);
  char payload[sizeof(Line::payload)] = {};
  uint64_t sequence = 0;
  return Measure(
      [&] {
        std::memcpy(area->to_server.payload, payload, sizeof(payload));
        area->to_server.sequence.store(++sequence, std::memory_order_release);
        while (area->to_client.sequence.load(std::memory_order_acquire) != sequence) {
        }
        std::memcpy(payload, area->to_client.payload, sizeof(payload));
      },
      options.time);
}

// ---- verbs

[[noreturn]] void ServeVerbs(const Options& options) {
  DcSide side(static_cast<uint64_t>(getpid()));
  Announce(absl::StrCat(side.address().dctn, "/", side.address().key));
  ibv_wc wc;
  for (;;) {
    if (side.Poll(&wc, 1) == 0) continue;
    DcAddress client;  // each message says where the answer goes
    std::memcpy(&client, side.received(wc), sizeof(client));
    std::memcpy(side.send_buffer(), side.received(wc), wc.byte_len);
    side.Add(client, options.size_bytes);
    side.Ring();
    side.Repost(&wc, 1);
  }
}

int64_t MeasureVerbs(const std::string& address, const Options& options) {
  const std::vector<std::string> parts = absl::StrSplit(address, '/');
  DcAddress server;
  Check(parts.size() == 2 && absl::SimpleAtoi(parts[0], &server.dctn) &&
            absl::SimpleAtoi(parts[1], &server.key),
        "reading the server's address");
  DcSide side(static_cast<uint64_t>(getpid()));
  const DcAddress self = side.address();
  return Measure(
      [&] {
        std::memcpy(side.send_buffer(), &self, sizeof(self));
        side.Add(server, options.size_bytes);
        side.Ring();
        ibv_wc wc;
        while (side.Poll(&wc, 1) == 0) {
        }
        Check(wc.byte_len == options.size_bytes, "an echo");
        side.Repost(&wc, 1);
      },
      options.time);
}

// ---- rpc

[[noreturn]] void ServeRpc() {
  ServerOptions server_options;
  server_options.device = "softdc0";
  auto server = Server::Create(server_options);
  CheckOk(server.status());
  examples::echo::EchoService echo;
  CheckOk((*server)->Register(&echo));
  auto port = (*server)->Listen("127.0.0.1:0");
  CheckOk(port.status());
  Announce(absl::StrCat("127.0.0.1:", *port));
  for (;;) pause();
}

int64_t MeasureRpc(const std::string& address, const Options& options) {
  ChannelOptions channel_options;
  channel_options.device = "softdc0";
  auto channel = Channel::Connect(address, channel_options);
  CheckOk(channel.status());
  const examples::echo::EchoClient client(*channel);
  CallContext context(absl::Seconds(5));
  examples::echo::SayRequest request;
  request.set_payload(std::string(options.size_bytes, 'x'));
  examples::echo::SayReply reply;
  return Measure(
      [&] {
        CheckOk(client.Say(context, request, &reply));
        Check(reply.payload().size() == options.size_bytes, "an echo");
      },
      options.time);
}

// ---- the run

[[noreturn]] void Serve(const std::string& way, const Options& options) {
  if (way == "raw") ServeRaw();
  if (way == "verbs") ServeVerbs(options);
  ServeRpc();
}

int64_t MeasureWay(const std::string& way, const std::string& address, const Options& options) {
  if (way == "raw") return MeasureRaw(address, options);
  if (way == "verbs") return MeasureVerbs(address, options);
  return MeasureRpc(address, options);
}

std::vector<std::string> Role(const std::string& role, const std::string& way,
                              const Options& options) {
  return {tools::PathBesideThisProgram("echo_vs_raw"),
          role,
          way,
          "--cpus=" + options.cpus,
          absl::StrCat("--size=", options.size_bytes),
          "--seconds=" + absl::FormatDuration(options.time)};
}

int64_t RepeatOnce(const std::string& way, const Options& options) {
  auto server = tools::ChildProcess::Start(Role("serve", way, options));
  CheckOk(server.status());
  auto address = tools::ListeningAddress(**server, kHang);
  CheckOk(address.status());
  std::vector<std::string> arguments = Role("measure", way, options);
  arguments.insert(arguments.begin() + 3, *address);
  auto client = tools::ChildProcess::Start(arguments);
  CheckOk(client.status());
  auto line = (*client)->ReadLine(kHang);
  CheckOk(line.status());
  int64_t median_ps = 0;
  Check(absl::SimpleAtoi(*line, &median_ps), "measuring");
  return median_ps;
}

void Run(const Options& options) {
  std::vector<std::vector<int64_t>> medians_ps(kWays.size());
  for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t way = 0; way < kWays.size(); ++way) {
      medians_ps[way].push_back(RepeatOnce(kWays[way], options));
    }
    std::fprintf(stderr, "\r%u of %u", repetition + 1, options.repetitions);
  }
  std::fprintf(stderr, "\n");
  const BenchHost host = tools::ThisHost();
  std::printf("%s, %u CPUs, %s, build %s; CPUs %s, %u bytes, %u repetitions\n",
              host.cpu_model().c_str(), host.cpu_count(), host.kernel().c_str(),
              host.build().c_str(), options.cpus.c_str(), options.size_bytes, options.repetitions);
  double raw_ns = 0;
  std::printf("%-8s %12s %10s %10s %8s\n", "", "median ns", "lowest", "highest", "x raw");
  for (size_t way = 0; way < kWays.size(); ++way) {
    std::vector<int64_t>& all = medians_ps[way];
    std::sort(all.begin(), all.end());
    const double median_ns = static_cast<double>(all[all.size() / 2]) / 1000;
    if (way == 0) raw_ns = median_ns;
    std::printf("%-8s %12.1f %10.1f %10.1f %8.2f\n", kWays[way].c_str(), median_ns,
                static_cast<double>(all.front()) / 1000, static_cast<double>(all.back()) / 1000,
                median_ns / raw_ns);
  }
}

int Main(std::vector<std::string> arguments) {
  std::vector<std::string> words;
  while (!arguments.empty() && arguments[0].rfind("--", 0) != 0) {
    words.push_back(arguments[0]);
    arguments.erase(arguments.begin());
  }
  Options options;
  tools::CommandLine line(
      "usage: echo_vs_raw [options]\nOne echo at a time: cache lines, DC verbs, Sluice RPC.\n");
  line.Add("cpus", &options.cpus, "CPU of the client and CPU of the server");
  line.Add("repetitions", &options.repetitions, 1, 10'000, "of each way");
  line.Add("size", &options.size_bytes, 16, kMaxSizeBytes,
           "bytes of payload of verbs and rpc; raw has 64");
  line.Add("seconds", &options.time, absl::Milliseconds(10), absl::Minutes(1),
           "of each repetition");
  absl::Status status = line.Parse(arguments);
  int cpus[2] = {};
  const std::vector<std::string> texts = absl::StrSplit(options.cpus, ',');
  if (status.ok() && (texts.size() != 2 || !absl::SimpleAtoi(texts[0], &cpus[0]) ||
                      !absl::SimpleAtoi(texts[1], &cpus[1]))) {
    status = absl::InvalidArgumentError("--cpus takes two numbers, such as 0,1");
  }
  if (!status.ok()) {
    std::fprintf(stderr, "echo_vs_raw: %s\n", std::string(status.message()).c_str());
    return tools::kExitUsage;
  }
  if (line.help()) {
    std::fputs(line.HelpText().c_str(), stdout);
    return tools::kExitOk;
  }
  if (words.empty()) {
    Run(options);
    return tools::kExitOk;
  }
  const bool serve = words[0] == "serve";
  CheckOk(tools::PinToCpu(cpus[serve ? 1 : 0]));
  if (serve) Serve(words.at(1), options);
  std::printf("%lld\n", static_cast<long long>(MeasureWay(words.at(1), words.at(2), options)));
  std::fflush(stdout);
  return tools::kExitOk;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) { return sluice::benchmarks::Main({argv + 1, argv + argc}); }
