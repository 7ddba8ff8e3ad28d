// SPDX-License-Identifier: Apache-2.0
//
// Cost of a connection over softdc: a new channel and its first call, in a process that has connected before, and
// from main() of a new process to its first reply.
//   connect_cost [WARM [FRESH]]     connections to make in one process, and new processes; default 200 and 50
//   connect_cost serve              an echo server; prints its address
//   connect_cost warm ADDRESS N     N channels, one after the other, each with one call
//   connect_cost fresh ADDRESS      one channel and one call; prints nanoseconds since main() began
// The last three are for strace, perf and callgrind, which follow one process.
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "benchmarks/die.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"
#include "tools/child_process.h"

namespace sluice {
namespace {

using benchmarks::Die;
using benchmarks::OrDie;

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kPatience = absl::Seconds(20);

int64_t Nanoseconds(const timespec& time) { return time.tv_sec * 1'000'000'000LL + time.tv_nsec; }
int64_t Nanoseconds(const timeval& time) {
  return time.tv_sec * 1'000'000'000LL + time.tv_usec * 1000LL;
}
int64_t NowNs(clockid_t clock = CLOCK_MONOTONIC) {
  timespec now;
  if (clock_gettime(clock, &now) != 0) Die(absl::ErrnoToStatus(errno, "clock_gettime"));
  return Nanoseconds(now);
}

// A channel to `address` that has received one reply.
std::shared_ptr<Channel> ConnectAndCall(const std::string& address) {
  auto channel = OrDie(Channel::Connect(address, {}));
  SayRequest request;
  request.set_payload(std::string(64, 'x'));
  CallContext context(kPatience);
  if (auto reply = EchoClient(channel).Say(context, request); !reply.ok()) Die(reply.status());
  return channel;
}

struct Sample {
  int64_t wall_ns, user_ns, system_ns, faults;
};

int64_t Rank(std::vector<int64_t> values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1))];
}
void Print(const char* what, const std::vector<Sample>& samples, int64_t Sample::*member,
           double unit, const char* unit_name) {
  std::vector<int64_t> values;
  for (const Sample& sample : samples) values.push_back(sample.*member);
  std::printf("  %-28s min %8.2f  p50 %8.2f  p99 %8.2f %s\n", what,
              static_cast<double>(Rank(values, 0)) / unit,
              static_cast<double>(Rank(values, 0.5)) / unit,
              static_cast<double>(Rank(values, 0.99)) / unit, unit_name);
}

int Serve() {
  examples::echo::EchoService echo;
  auto server = OrDie(Server::Create({}));
  if (auto status = server->Register(&echo); !status.ok()) Die(status);
  const uint16_t port = OrDie(server->Listen("127.0.0.1:0"));
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  for (;;) pause();
}

int Warm(const std::string& address, int connections) {
  ConnectAndCall(address);
  std::vector<Sample> connects, ends;
  for (int i = 0; i < connections; ++i) {
    rusage before, up, after;
    getrusage(RUSAGE_SELF, &before);
    const int64_t start_ns = NowNs();
    auto channel = ConnectAndCall(address);
    const int64_t up_ns = NowNs();
    getrusage(RUSAGE_SELF, &up);
    channel.reset();
    const int64_t end_ns = NowNs();
    getrusage(RUSAGE_SELF, &after);
    const auto sample = [](int64_t wall_ns, const rusage& from, const rusage& to) {
      return Sample{wall_ns, Nanoseconds(to.ru_utime) - Nanoseconds(from.ru_utime),
                    Nanoseconds(to.ru_stime) - Nanoseconds(from.ru_stime),
                    to.ru_minflt - from.ru_minflt};
    };
    connects.push_back(sample(up_ns - start_ns, before, up));
    ends.push_back(sample(end_ns - up_ns, up, after));
  }
  std::printf("connect and first call, in a process that connected before, %d times:\n",
              connections);
  Print("time", connects, &Sample::wall_ns, 1e6, "ms");
  Print("CPU time, user", connects, &Sample::user_ns, 1e6, "ms");
  Print("CPU time, kernel", connects, &Sample::system_ns, 1e6, "ms");
  Print("page faults", connects, &Sample::faults, 1, "");
  std::printf("end of the channel:\n");
  Print("time", ends, &Sample::wall_ns, 1e6, "ms");
  Print("CPU time, user", ends, &Sample::user_ns, 1e6, "ms");
  Print("CPU time, kernel", ends, &Sample::system_ns, 1e6, "ms");
  return 0;
}

// Prints what a connection consists of, as it costs here: these differ between machines by a factor of ten and more.
void PrintMachine() {
  constexpr int kPages = 4096;
  constexpr size_t kPageBytes = 4096;
  void* const pages = mmap(nullptr, kPages * kPageBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) Die(absl::ErrnoToStatus(errno, "mmap"));
  madvise(pages, kPages * kPageBytes, MADV_NOHUGEPAGE);
  const int64_t faults_ns = NowNs();
  for (int i = 0; i < kPages; ++i) static_cast<volatile char*>(pages)[i * kPageBytes] = 1;
  const int64_t calls_ns = NowNs();
  constexpr int kCalls = 100'000;
  for (int i = 0; i < kCalls; ++i) (void)getppid();
  const int64_t wakes_ns = NowNs();
  munmap(pages, kPages * kPageBytes);

  constexpr int kWakes = 5'000;
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) Die(absl::ErrnoToStatus(errno, "pipe"));
  std::thread other([&] {
    char byte = 0;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {
    }
  });
  const int64_t start_ns = NowNs();
  char byte = 0;
  for (int i = 0; i < kWakes; ++i) {
    if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) std::abort();
  }
  const int64_t end_ns = NowNs();
  close(there[1]);
  other.join();
  for (const int fd : {there[0], back[0], back[1]}) close(fd);
  std::printf(
      "this machine: page fault %.1f us, system call %.2f us, wake-up of another thread %.1f us\n",
      static_cast<double>(calls_ns - faults_ns) / kPages / 1e3,
      static_cast<double>(wakes_ns - calls_ns) / kCalls / 1e3,
      static_cast<double>(end_ns - start_ns) / (2 * kWakes) / 1e3);
}

int Measure(const char* program, int warm, int fresh) {
  PrintMachine();
  auto server = OrDie(tools::ChildProcess::Start({program, "serve"}));
  const std::string address = OrDie(tools::ListeningAddress(*server, kPatience));
  clockid_t server_clock;
  if (clock_getcpuclockid(server->pid(), &server_clock) != 0) {
    Die(absl::InternalError("no CPU clock of the server"));
  }
  if (warm > 0) {
    const int64_t before_ns = NowNs(server_clock);
    Warm(address, warm);
    std::printf("server's CPU time per connection: %.2f ms\n",
                static_cast<double>(NowNs(server_clock) - before_ns) / 1e6 / (warm + 1));
    std::fflush(stdout);
  }
  std::vector<Sample> samples;
  for (int i = 0; i < fresh; ++i) {
    rusage before, after;
    getrusage(RUSAGE_CHILDREN, &before);
    auto client = OrDie(tools::ChildProcess::Start({program, "fresh", address}));
    const std::string line = OrDie(client->ReadLine(kPatience));
    OrDie(client->Wait(kPatience));
    getrusage(RUSAGE_CHILDREN, &after);
    samples.push_back({std::atoll(line.c_str()),
                       Nanoseconds(after.ru_utime) - Nanoseconds(before.ru_utime),
                       Nanoseconds(after.ru_stime) - Nanoseconds(before.ru_stime),
                       after.ru_minflt - before.ru_minflt});
  }
  if (samples.empty()) return 0;
  std::printf("new process, %d times:\n", fresh);
  Print("main() to first reply", samples, &Sample::wall_ns, 1e6, "ms");
  Print("CPU time of it all, user", samples, &Sample::user_ns, 1e6, "ms");
  Print("CPU time of it all, kernel", samples, &Sample::system_ns, 1e6, "ms");
  Print("page faults of it all", samples, &Sample::faults, 1, "");
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  const int64_t start_ns = sluice::NowNs();
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "serve") return sluice::Serve();
  if (mode == "warm" && argc == 4) return sluice::Warm(argv[2], std::atoi(argv[3]));
  if (mode == "fresh" && argc == 3) {
    const auto channel = sluice::ConnectAndCall(argv[2]);
    std::printf("%lld\n", static_cast<long long>(sluice::NowNs() - start_ns));
    return 0;
  }
  return sluice::Measure(argv[0], argc > 1 ? std::atoi(argv[1]) : 200,
                         argc > 2 ? std::atoi(argv[2]) : 50);
}
