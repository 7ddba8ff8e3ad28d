// SPDX-License-Identifier: Apache-2.0
//
// rc_beside_dc: RC queue pairs beside DC on softdc, between two processes, in one run.
//
//   dc         DC with lanes, as by default
//   dc-plain   DC without lanes: messages through queue pairs and completion queues
//   rc         RC with lanes, as by default: a queue pair for each peer
//   rc-plain   RC without lanes
//
// Calls      One call of 64 bytes at a time, then 32 at a time, both with a loop of the caller on both sides, pinned to
//            `--cpus`. The kinds alternate, each repetition with two fresh processes. A line has the median of the
//            repetitions, with the lowest and the highest.
// Memory     A server with 1, 10, 100 and 1,000 clients, each of which has had one reply: growth of its resident memory since before
//            the first client, for each client. The queues of softdc are in it.
// Usage      rc_beside_dc [--cpus=0,1] [--repetitions=5] [--seconds=1]
//
// A process of its own is this program with a role: "serve KIND CPU", "call KIND CPU ADDRESS SECONDS",
// "hold KIND COUNT ADDRESS".
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "benchmarks/die.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/runtime.h"
#include "middleware/api/server.h"
#include "tools/child_process.h"
#include "transport/base/clock.h"
#include "transport/base/histogram.h"

namespace sluice {
namespace {

using benchmarks::Die;
using benchmarks::OrDie;

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr int kOutstanding = 32;
// Channels of one runtime. A runtime paces its attempts to connect to one server after a burst of 10 (transport/cm/pacing.h).
constexpr size_t kChannelsPerRuntime = 16;
const std::vector<std::string> kKinds = {"dc", "dc-plain", "rc", "rc-plain"};

struct Options {
  std::string cpus = "0,1";
  uint32_t repetitions = 5;
  absl::Duration time = absl::Seconds(1);
};

std::string Device(const std::string& kind) {
  return kind.starts_with("rc") ? "softdc0/rc" : "softdc0";
}
EndpointLimits Limits(const std::string& kind) {
  EndpointLimits limits;
  if (kind.ends_with("-plain")) limits.lanes = Lanes::kOff;
  return limits;
}

void Pin(const std::string& cpu) {
  int number = -1;
  if (!absl::SimpleAtoi(cpu, &number) || number < 0) return;  // "any"
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(number, &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) Die(absl::ErrnoToStatus(errno, "pinning"));
}

double ResidentKib(pid_t pid) {
  std::ifstream statm(absl::StrCat("/proc/", pid, "/statm"));
  double size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

int Serve(const std::string& kind, const std::string& cpu) {
  Pin(cpu);
  examples::echo::EchoService echo;
  ServerOptions options;
  options.device = Device(kind);
  options.limits = Limits(kind);
  // Measured pinned, and with a core for each side.
  if (cpu != "any") options.spin = absl::Seconds(1);
  auto server = OrDie(Server::Create(options));
  if (auto status = server->Register(&echo); !status.ok()) Die(status);
  std::printf("listening on 127.0.0.1:%d\n", OrDie(server->Listen("127.0.0.1:0")));
  std::fflush(stdout);
  for (;;) pause();
}

// Calls for `time` with `outstanding` at a time, after a tenth of it as warm-up. Returns the calls a second, and the latencies if there is one
// at a time.
double CallFor(absl::Duration time, int outstanding, Channel& channel, EchoClient& client,
               base::Histogram* latencies_ns) {
  base::RealClock clock;
  SayRequest request;
  request.set_payload(std::string(64, 'x'));
  std::vector<SayReply> replies(outstanding);
  CallContext context(kPatience);
  const int64_t start_ns = clock.NowNs();
  const int64_t measure_ns = start_ns + absl::ToInt64Nanoseconds(time) / 10;
  const int64_t end_ns = start_ns + absl::ToInt64Nanoseconds(time);
  uint64_t calls = 0;
  if (latencies_ns != nullptr) {
    for (int64_t before_ns = start_ns; before_ns < end_ns;) {
      if (auto status = client.Say(context, request, replies.data()); !status.ok()) Die(status);
      const int64_t now_ns = clock.NowNs();
      if (before_ns >= measure_ns) {
        latencies_ns->Record(now_ns - before_ns);
        ++calls;
      }
      before_ns = now_ns;
    }
    return static_cast<double>(calls) * 1e9 / static_cast<double>(end_ns - measure_ns);
  }
  bool started = false;
  bool over = false;
  int under_way = 0;
  int64_t now_ns = start_ns;
  std::function<void(int)> start = [&](int i) {
    ++under_way;
    const absl::Status begun =
        client.StartSay(context, request, &replies[i], [&, i](const absl::Status& status) {
          if (!status.ok()) Die(status);
          --under_way;
          if (now_ns >= measure_ns && !over) ++calls;
          if (!over) start(i);
        });
    if (!begun.ok()) Die(begun);
  };
  channel.Drive(
      [&] {
        now_ns = clock.NowNs();
        over = now_ns >= end_ns;
        if (!std::exchange(started, true)) {
          for (int i = 0; i < outstanding; ++i) start(i);
        }
        return over && under_way == 0;
      },
      kPatience);
  return static_cast<double>(calls) * 1e9 / static_cast<double>(end_ns - measure_ns);
}

int Call(const std::string& kind, const std::string& cpu, const std::string& address,
         absl::Duration time) {
  Pin(cpu);
  ChannelOptions options;
  options.device = Device(kind);
  options.limits = Limits(kind);
  options.spin = absl::Seconds(1);
  auto channel = OrDie(Channel::Connect(address, options));
  EchoClient client(channel);
  base::Histogram latencies_ns;
  CallFor(time, 1, *channel, client, &latencies_ns);
  const double rate = CallFor(time, kOutstanding, *channel, client, nullptr);
  std::printf("%d %d %.0f\n", static_cast<int>(latencies_ns.Quantile(0.5)),
              static_cast<int>(latencies_ns.Quantile(0.99)), rate);
  std::fflush(stdout);
  std::_Exit(0);
}

int Hold(const std::string& kind, size_t count, const std::string& address) {
  std::vector<std::shared_ptr<Channel>> channels;
  ChannelOptions options;
  options.connect_in_background = true;
  options.connect_timeout = kPatience;
  options.share_connections = false;
  for (size_t i = 0; i < count; ++i) {
    if (i % kChannelsPerRuntime == 0) {
      RuntimeOptions runtime;
      runtime.device = Device(kind);
      runtime.limits = Limits(kind);
      options.runtime = OrDie(Runtime::Create(runtime));
    }
    channels.push_back(OrDie(Channel::Connect(address, options)));
  }
  SayRequest request;
  request.set_payload(std::string(64, 'x'));
  for (const auto& channel : channels) {
    if (auto status = channel->WaitUntilConnected(kPatience); !status.ok()) Die(status);
    CallContext context(kPatience);
    if (auto reply = EchoClient(channel).Say(context, request); !reply.ok()) Die(reply.status());
  }
  std::printf("%zu\n", channels.size());
  std::fflush(stdout);
  for (;;) pause();
}

struct Figures {
  std::vector<double> p50_ns, p99_ns, rate;
};

std::string Spread(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return absl::StrFormat("%9.0f (%.0f to %.0f)", of[of.size() / 2], of.front(), of.back());
}

Figures& operator+=(Figures& figures, const std::string& line) {
  double p50 = 0, p99 = 0, rate = 0;
  if (std::sscanf(line.c_str(), "%lf %lf %lf", &p50, &p99, &rate) != 3) {
    Die(absl::InternalError(absl::StrCat("a process printed ", line)));
  }
  figures.p50_ns.push_back(p50);
  figures.p99_ns.push_back(p99);
  figures.rate.push_back(rate);
  return figures;
}

void Calls(const std::string& program, const Options& options) {
  const std::vector<std::string> cpus = absl::StrSplit(options.cpus, ',');
  if (cpus.size() != 2) Die(absl::InvalidArgumentError("--cpus has two numbers, as in 0,1"));
  std::vector<Figures> all(kKinds.size());
  for (uint32_t repetition = 0; repetition < options.repetitions; ++repetition) {
    for (size_t i = 0; i < kKinds.size(); ++i) {
      auto server = OrDie(tools::ChildProcess::Start({program, "serve", kKinds[i], cpus[0]}));
      const std::string address = OrDie(tools::ListeningAddress(*server, kPatience));
      auto client =
          OrDie(tools::ChildProcess::Start({program, "call", kKinds[i], cpus[1], address,
                                            absl::StrCat(absl::ToDoubleSeconds(options.time))}));
      all[i] += OrDie(client->ReadLine(2 * options.time + kPatience));
    }
  }
  std::printf("%-9s %28s %28s %36s\n", "", "p50 ns", "p99 ns", "calls/s, 32 at a time");
  for (size_t i = 0; i < kKinds.size(); ++i) {
    std::printf("%-9s %28s %28s %36s\n", kKinds[i].c_str(), Spread(all[i].p50_ns).c_str(),
                Spread(all[i].p99_ns).c_str(), Spread(all[i].rate).c_str());
  }
}

void Memory(const std::string& program) {
  std::printf("\n%-9s %8s %20s %16s\n", "", "clients", "server before, KiB", "KiB a client");
  for (const std::string& kind : kKinds) {
    for (const size_t count : {1, 10, 100, 1000}) {
      auto server = OrDie(tools::ChildProcess::Start({program, "serve", kind, "any"}));
      const std::string address = OrDie(tools::ListeningAddress(*server, kPatience));
      const double before_kib = ResidentKib(server->pid());
      auto clients =
          OrDie(tools::ChildProcess::Start({program, "hold", kind, absl::StrCat(count), address}));
      OrDie(clients->ReadLine(3 * kPatience));
      std::printf("%-9s %8zu %20.0f %16.1f\n", kind.c_str(), count, before_kib,
                  (ResidentKib(server->pid()) - before_kib) / static_cast<double>(count));
      std::fflush(stdout);
    }
  }
}

absl::Status Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::pair<std::string, std::string> flag =
        absl::StrSplit(argv[i], absl::MaxSplits('=', 1));
    double seconds = 0;
    if (flag.first == "--cpus") {
      options->cpus = flag.second;
    } else if (flag.first == "--repetitions" &&
               absl::SimpleAtoi(flag.second, &options->repetitions) && options->repetitions > 0) {
    } else if (flag.first == "--seconds" && absl::SimpleAtod(flag.second, &seconds) &&
               seconds > 0) {
      options->time = absl::Seconds(seconds);
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          argv[i], ": usage: rc_beside_dc [--cpus=0,1] [--repetitions=5] [--seconds=1]"));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() == 3 && arguments[0] == "serve") {
    return sluice::Serve(arguments[1], arguments[2]);
  }
  if (arguments.size() == 5 && arguments[0] == "call") {
    return sluice::Call(arguments[1], arguments[2], arguments[3],
                        absl::Seconds(std::stod(arguments[4])));
  }
  if (arguments.size() == 4 && arguments[0] == "hold") {
    return sluice::Hold(arguments[1], std::stoul(arguments[2]), arguments[3]);
  }
  sluice::Options options;
  if (auto status = sluice::Parse(argc, argv, &options); !status.ok()) sluice::Die(status);
  sluice::Calls(argv[0], options);
  sluice::Memory(argv[0]);
  return 0;
}
