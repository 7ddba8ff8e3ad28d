// SPDX-License-Identifier: Apache-2.0
//
// Cost of channels in one process over softdc: threads, resident memory and the time until all are connected. Three kinds:
// channels of a runtime that share connections, channels of a runtime with a connection each, and channels that share nothing. Of
// the first kind also the time that a further channel to a connected server takes.
//   scale [PROCESSES [N...]]                default 16 processes of servers, and 1, 100 and 1,000 channels
//   scale serve                             7 echo servers; prints their addresses
//   scale client KIND N ADDRESS...          N channels in this process; prints a line of figures. KIND: shared, runtime, alone
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "benchmarks/die.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/runtime.h"
#include "middleware/api/server.h"
#include "tools/child_process.h"

namespace sluice {
namespace {

using benchmarks::Die;
using benchmarks::OrDie;

using examples::echo::EchoClient;
using examples::echo::SayRequest;

constexpr absl::Duration kPatience = absl::Seconds(60);

// Attempts to connect to one server are paced after a burst of 10 (transport/cm/pacing.h): 16 processes have enough servers for
// 1,000 channels.
constexpr size_t kServersPerProcess = 7;

// Small windows, for many peers.
EndpointLimits Limits(uint32_t receive_buffers) {
  EndpointLimits limits;
  limits.credits_per_peer = 8;
  limits.receive_buffers = receive_buffers;
  limits.max_message_bytes = 4096;
  return limits;
}

size_t Threads() {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                                           std::filesystem::directory_iterator()));
}
double ResidentKib() {
  std::ifstream statm("/proc/self/statm");
  double size = 0, resident = 0;
  statm >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

int Serve() {
  examples::echo::EchoService echo;
  ServerOptions options;
  options.limits = Limits(1024);
  std::vector<std::unique_ptr<Server>> servers;
  while (servers.size() < kServersPerProcess) {
    servers.push_back(OrDie(Server::Create(options)));
    if (auto status = servers.back()->Register(&echo); !status.ok()) Die(status);
    const uint16_t port = OrDie(servers.back()->Listen("127.0.0.1:0"));
    std::printf("listening on 127.0.0.1:%d\n", port);
  }
  std::fflush(stdout);
  for (;;) pause();
}

// The median of what Connect() takes for further channels.
double FurtherChannelUs(const std::string& address, ChannelOptions options) {
  options.connect_in_background = false;
  std::vector<std::shared_ptr<Channel>> channels;
  std::vector<double> each_us;
  for (int i = 0; i < 101; ++i) {
    const absl::Time start = absl::Now();
    channels.push_back(OrDie(Channel::Connect(address, options)));
    each_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
  }
  std::nth_element(each_us.begin(), each_us.begin() + 50, each_us.end());
  return each_us[50];
}

int Client(const std::string& kind, size_t count, const std::vector<std::string>& addresses) {
  const double empty_kib = ResidentKib();
  ChannelOptions options;
  options.limits = Limits(1024);
  options.connect_in_background = true;
  options.connect_timeout = kPatience;
  options.max_outstanding_calls = 16;
  options.trace_records = 16;
  options.share_connections = kind == "shared";
  if (kind != "alone") {
    RuntimeOptions runtime;
    runtime.limits = Limits(16384);
    options.runtime = OrDie(Runtime::Create(runtime));
  }
  const double begun_kib = ResidentKib();
  std::vector<std::shared_ptr<Channel>> channels;
  const absl::Time start = absl::Now();
  for (size_t i = 0; i < count; ++i) {
    channels.push_back(OrDie(Channel::Connect(addresses[i % addresses.size()], options)));
  }
  for (const auto& channel : channels) {
    if (auto status = channel->WaitUntilConnected(kPatience); !status.ok()) Die(status);
  }
  const absl::Duration up = absl::Now() - start;
  const double idle_kib = ResidentKib();
  const size_t threads = Threads();
  SayRequest request;
  request.set_payload(std::string(64, 'x'));
  for (const auto& channel : channels) {
    CallContext context(kPatience);
    if (auto reply = EchoClient(channel).Say(context, request); !reply.ok()) Die(reply.status());
  }
  std::printf("%-7s %6zu %8zu %10.0f %10.0f %12.1f %14.1f %10.1f", kind.c_str(), count, threads,
              begun_kib - empty_kib, idle_kib, (idle_kib - begun_kib) / static_cast<double>(count),
              (ResidentKib() - begun_kib) / static_cast<double>(count),
              absl::ToDoubleMilliseconds(up));
  if (kind == "shared") std::printf(" %10.1f", FurtherChannelUs(addresses[0], options));
  std::printf("\n");
  std::fflush(stdout);
  std::_Exit(0);
}

int All(const std::string& program, size_t processes, const std::vector<std::string>& counts) {
  std::vector<std::unique_ptr<tools::ChildProcess>> children;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < processes; ++i) {
    children.push_back(OrDie(tools::ChildProcess::Start({program, "serve"})));
  }
  for (size_t i = 0; i < processes * kServersPerProcess; ++i) {
    addresses.push_back(OrDie(tools::ListeningAddress(*children[i % processes], kPatience)));
  }
  std::printf("%-7s %6s %8s %10s %10s %12s %14s %10s %10s\n", "", "number", "threads", "fixed KiB",
              "RSS KiB", "KiB each", "after a call", "all up ms", "another us");
  for (const char* kind : {"shared", "runtime", "alone"}) {
    for (const std::string& count : counts) {
      // Each by itself takes a device, queues and buffers: not more than a test machine has.
      if (std::strcmp(kind, "alone") == 0 && std::stoul(count) > 100) continue;
      std::vector<std::string> arguments = {program, "client", kind, count};
      arguments.insert(arguments.end(), addresses.begin(), addresses.end());
      auto client = OrDie(tools::ChildProcess::Start(arguments));
      std::printf("%s\n", OrDie(client->ReadLine(2 * kPatience)).c_str());
      std::fflush(stdout);
    }
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments[0] == "serve") return sluice::Serve();
  if (arguments.size() > 3 && arguments[0] == "client") {
    return sluice::Client(arguments[1], std::stoul(arguments[2]),
                          {arguments.begin() + 3, arguments.end()});
  }
  std::vector<std::string> counts(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (counts.empty()) counts = {"1", "100", "1000"};
  return sluice::All(argv[0], arguments.empty() ? 16 : std::stoul(arguments[0]), counts);
}
