// SPDX-License-Identifier: Apache-2.0
//
// What the programs of this folder have in common: the command line, the two processes, their CPUs, and the measurement. Each program
// names a client and a server of one library; peers.sh compiles and runs them. No part of the build.
//   NAME latency|rate SIZE SECONDS CLIENT_CPU,SERVER_CPU
//     latency   one request at a time; prints the median of the round trip in ns
//     rate      32 requests outstanding; prints the replies of a second
// Requests and replies have SIZE bytes. The first fifth of the time is warm-up. CPUs "-" pins nothing.
#ifndef SLUICE_BENCHMARKS_PEERS_ECHO_RUN_H_
#define SLUICE_BENCHMARKS_PEERS_ECHO_RUN_H_

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace peers {

constexpr int kOutstanding = 32;

[[noreturn]] inline void Die(const char* what, const char* why) {
  std::fprintf(stderr, "%s: %s\n", what, why);
  std::_Exit(1);
}

inline int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

inline void Pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (sched_setaffinity(0, sizeof(set), &set) != 0) Die("pin", "there is no such CPU");
}

// Client: Start() sends one request; Take() returns how many replies have come since the last call, and may wait for the first.
template <typename Client>
int64_t MedianLatencyNs(Client& client, int64_t time_ns) {
  std::vector<int64_t> ns;
  ns.reserve(1 << 22);
  const int64_t begin_ns = NowNs();
  for (int64_t now_ns = begin_ns; now_ns - begin_ns < time_ns;) {
    const int64_t sent_ns = now_ns;
    client.Start();
    while (client.Take() == 0) {
    }
    now_ns = NowNs();
    if (sent_ns - begin_ns >= time_ns / 5) ns.push_back(now_ns - sent_ns);
  }
  if (ns.empty()) Die("latency", "no request ended in time");
  const auto middle = ns.begin() + static_cast<ptrdiff_t>(ns.size() / 2);
  std::nth_element(ns.begin(), middle, ns.end());
  return *middle;
}

template <typename Client>
double RepliesPerSecond(Client& client, int64_t time_ns) {
  for (int i = 0; i < kOutstanding; ++i) client.Start();
  const auto run = [&client](int64_t for_ns) {
    int64_t replies = 0;
    const int64_t begin_ns = NowNs();
    int64_t now_ns = begin_ns;
    while (now_ns - begin_ns < for_ns) {
      const int came = client.Take();
      for (int i = 0; i < came; ++i) client.Start();
      replies += came;
      now_ns = NowNs();
    }
    return static_cast<double>(replies) * 1e9 / static_cast<double>(now_ns - begin_ns);
  };
  run(time_ns / 5);
  return run(time_ns - time_ns / 5);
}

// Library: Prepare() runs before the fork; Serve() answers in the child until it is killed; Connect(SIZE) returns a client that has
// had a reply already, by pointer.
template <typename Library>
int Main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc != 5 || (mode != "latency" && mode != "rate")) {
    Die(argv[0], "usage: latency|rate SIZE SECONDS CLIENT_CPU,SERVER_CPU");
  }
  const size_t size_bytes = std::strtoul(argv[2], nullptr, 10);
  const auto time_ns = static_cast<int64_t>(std::atof(argv[3]) * 1e9);
  int client_cpu = -1, server_cpu = -1;
  if (std::string(argv[4]) != "-" && std::sscanf(argv[4], "%d,%d", &client_cpu, &server_cpu) != 2) {
    Die(argv[0], "CPUs are two numbers, or -");
  }
  Library library;
  library.Prepare();
  const pid_t server = fork();
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Pin(server_cpu);
    library.Serve(size_bytes);
    std::_Exit(0);
  }
  Pin(client_cpu);
  auto* client = library.Connect(size_bytes);  // never freed: the process ends with it
  if (mode == "latency") {
    std::printf("%lld\n", static_cast<long long>(MedianLatencyNs(*client, time_ns)));
  } else {
    std::printf("%.0f\n", RepliesPerSecond(*client, time_ns));
  }
  std::fflush(stdout);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  std::_Exit(0);
}

}  // namespace peers

#endif  // SLUICE_BENCHMARKS_PEERS_ECHO_RUN_H_
