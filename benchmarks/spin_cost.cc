// SPDX-License-Identifier: Apache-2.0
//
// spin_cost: what waiting costs where little goes on: one call a millisecond between a client and a server of one process, with
// how long both spin before they sleep.
//
// Usage      spin_cost [CALLS]      1,000 calls of each kind in each of three rounds, kinds taking turns
// Method     CPU time and voluntary context switches of the process (getrusage), so that both sides are in it, and the
//            kernel's part; latency of the calls as their caller sees it. Calls begin by a schedule, asleep between.
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"

namespace sluice::benchmarks {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(1);
constexpr int kRounds = 3;

struct Use {
  double cpu_us = 0;
  double switches = 0;
};

Use Now() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
  };
  return {us(usage.ru_utime) + us(usage.ru_stime), static_cast<double>(usage.ru_nvcsw)};
}

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "spin_cost: %s\n", status.ToString().c_str());
  std::exit(1);
}

void Measure(absl::Duration spin, int calls) {
  examples::echo::EchoService echo;
  ServerOptions server_options;
  server_options.device = "softdc0";
  server_options.spin = spin;
  auto server = Server::Create(server_options);
  CheckOk(server.status());
  CheckOk((*server)->Register(&echo));
  const auto port = (*server)->Listen("127.0.0.1:0");
  CheckOk(port.status());
  ChannelOptions options;
  options.device = "softdc0";
  options.spin = spin;
  auto channel = Channel::Connect("127.0.0.1:" + std::to_string(*port), options);
  CheckOk(channel.status());
  examples::echo::EchoClient client(*channel);
  examples::echo::SayRequest request;
  examples::echo::SayReply reply;
  request.set_payload(std::string(64, 'x'));

  std::vector<double> took_us;
  Use begin;
  absl::Time next = absl::Now();
  for (int i = -calls / 10; i < calls; ++i, next += kPeriod) {
    if (i == 0) begin = Now();
    absl::SleepFor(next - absl::Now());
    CallContext context(absl::Seconds(10));
    const absl::Time started = absl::Now();
    CheckOk(client.Say(context, request, &reply));
    if (i >= 0) took_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - started));
  }
  const Use end = Now();
  std::nth_element(took_us.begin(), took_us.begin() + calls / 2, took_us.end());
  std::printf("spin %-6s  CPU %6.1f us a call   switches %4.1f a call   p50 %6.1f us\n",
              absl::FormatDuration(spin).c_str(), (end.cpu_us - begin.cpu_us) / calls,
              (end.switches - begin.switches) / calls, took_us[calls / 2]);
}

int Main(int calls) {
  if (calls < 10) {
    std::fprintf(stderr, "usage: spin_cost [CALLS]   at least 10\n");
    return 2;
  }
  for (int round = 0; round < kRounds; ++round) {
    for (const absl::Duration spin :
         {absl::ZeroDuration(), absl::Microseconds(50), absl::Milliseconds(5)}) {
      Measure(spin, calls);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) {
  return sluice::benchmarks::Main(argc > 1 ? std::atoi(argv[1]) : 1000);
}
