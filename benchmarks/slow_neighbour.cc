// SPDX-License-Identifier: Apache-2.0
//
// slow_neighbour: what a handler that blocks its polling thread costs the callers of others, with one poller and with two.
//
// Usage      slow_neighbour [CALLS]      2,000 calls of each kind in each of three rounds, kinds taking turns
// Method     One server, two channels; with two pollers they are on different ones. One calls a handler that blocks for 1 ms
//            (asleep: CPUs are not what is measured), again and again; the other's calls are timed.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"

namespace sluice::benchmarks {
namespace {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kBlocks = absl::Milliseconds(1);
constexpr int kRounds = 3;
constexpr char kBlock[] = "block";

void CheckOk(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "slow_neighbour: %s\n", status.ToString().c_str());
  std::exit(1);
}

// Answers with the number of the thread that polls.
class Service final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    if (request.payload() == kBlock) absl::SleepFor(kBlocks);
    reply->set_payload(std::to_string(std::hash<std::thread::id>()(std::this_thread::get_id())));
    return absl::OkStatus();
  }
};

std::string Say(const std::shared_ptr<Channel>& channel, const std::string& text) {
  CallContext context(absl::Seconds(10));
  SayRequest request;
  SayReply reply;
  request.set_payload(text);
  CheckOk(EchoClient(channel).Say(context, request, &reply));
  return reply.payload();
}

std::shared_ptr<Channel> Connect(uint16_t port) {
  ChannelOptions options;
  options.device = "softdc0";
  auto channel = Channel::Connect("127.0.0.1:" + std::to_string(port), options);
  CheckOk(channel.status());
  return *channel;
}

void Measure(uint32_t pollers, bool neighbour, int calls) {
  Service service;
  ServerOptions options;
  options.device = "softdc0";
  options.pollers = pollers;
  auto server = Server::Create(options);
  CheckOk(server.status());
  CheckOk((*server)->Register(&service));
  const auto port = (*server)->Listen("127.0.0.1:0");
  CheckOk(port.status());
  std::vector<std::shared_ptr<Channel>> channels = {Connect(*port), Connect(*port)};
  while (pollers > 1 && Say(channels.front(), "") == Say(channels.back(), "")) {
    channels.push_back(Connect(*port));
  }
  std::atomic<bool> over{false};
  std::thread blocking([&] {
    while (neighbour && !over.load()) Say(channels.front(), kBlock);
  });
  std::vector<double> took_us;
  for (int i = 0; i < calls; ++i) {
    const absl::Time started = absl::Now();
    Say(channels.back(), "hello");
    took_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - started));
  }
  over.store(true);
  blocking.join();
  std::sort(took_us.begin(), took_us.end());
  std::printf("%u poller%s, %-18s  p50 %8.1f us   p99 %8.1f us\n", pollers,
              pollers == 1 ? " " : "s", neighbour ? "one blocks for 1 ms" : "nobody blocks",
              took_us[calls / 2], took_us[calls - 1 - calls / 100]);
}

int Main(int calls) {
  if (calls < 100) {
    std::fprintf(stderr, "usage: slow_neighbour [CALLS]   at least 100\n");
    return 2;
  }
  for (int round = 0; round < kRounds; ++round) {
    for (const uint32_t pollers : {1u, 2u}) {
      for (const bool neighbour : {false, true}) Measure(pollers, neighbour, calls);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice::benchmarks

int main(int argc, char** argv) {
  return sluice::benchmarks::Main(argc > 1 ? std::atoi(argv[1]) : 2000);
}
