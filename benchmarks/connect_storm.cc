// SPDX-License-Identifier: Apache-2.0
//
// Connect storm: many clients in a few processes connect to one server process at once, through the
// connection manager, on the software NIC. Connections per second, and memory per connection.
//   connect_storm [clients] [processes]
// Each client is a ConnectionManager with an event channel of its own, as an endpoint has; device,
// numbers and command thread are one per process. No handshake of peers, no queues.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/base/timer_wheel.h"
#include "transport/cm/connection_manager.h"
#include "transport/device/device.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice {
namespace {

constexpr int64_t kPatienceNs = 120'000'000'000;
constexpr int kWaitMs = 10;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "connect_storm: %s\n", why.c_str());
  std::_Exit(1);
}

// What a process says to the one that started it.
struct Report {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t before_bytes = 0;
  int64_t after_bytes = 0;
  uint16_t port = 0;
};

void Write(int fd, const void* data, size_t bytes) {
  if (write(fd, data, bytes) != static_cast<ssize_t>(bytes)) Die("a pipe broke");
}
void Read(int fd, void* data, size_t bytes) {
  if (read(fd, data, bytes) != static_cast<ssize_t>(bytes)) Die("a process ended early");
}

int64_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "re");
  long pages = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) Die("no statm");
  std::fclose(file);
  return int64_t{resident} * sysconf(_SC_PAGESIZE);
}

// One process's share of the machinery, and its loop.
struct Process {
  Process() : timers(clock.NowNs()), epoll(epoll_create1(EPOLL_CLOEXEC)) {
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    if (!opened.ok()) Die(opened.status().ToString());
    device = std::move(*opened);
    numbers.emplace(device->api(), device->context(), device->pd(), /*reserve=*/true);
    Watch(commands.fd(), nullptr);
  }
  void Watch(int fd, cm::ConnectionManager* manager) {
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = manager}};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
  }
  std::unique_ptr<cm::ConnectionManager> MakeManager(uint32_t max_connections, cm::User& user) {
    cm::Options options;
    options.max_connections = max_connections;
    options.backlog = 1024;
    options.accept_timeout_ns = kPatienceNs;
    auto made = cm::ConnectionManager::Create(device->api(), options, *numbers, commands, clock,
                                              timers, random, user);
    if (!made.ok()) Die(made.status().ToString());
    Watch((*made)->fd(), made->get());
    return std::move(*made);
  }
  void Turn() {
    epoll_event events[64];
    const int count = epoll_wait(epoll, events, 64, kWaitMs);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) continue;
      static_cast<cm::ConnectionManager*>(events[i].data.ptr)->ReadEvents();
    }
    commands.Drain();
    timers.Advance(clock.NowNs());
  }

  base::RealClock clock;
  base::TimerWheel timers;
  base::SystemRandom random;
  poller::ThreadCommands commands;
  std::unique_ptr<device::Device> device;
  std::optional<cm::QpnPool> numbers;
  const int epoll;
};

struct Counting : cm::User {
  void OnRequest(cm::ConnectionId id, std::span<const std::byte>, const cm::PathInfo&,
                 const std::string&) override {
    manager->Accept(id, {});
  }
  void OnResponse(cm::ConnectionId id, std::span<const std::byte>, const cm::PathInfo&) override {
    manager->Establish(id);
  }
  void OnUp(cm::ConnectionId id) override {
    ++*ups;
    up.insert(id.index);
  }
  // A client that waited too long for its answer comes again; its first request ends at the server.
  void OnDown(cm::ConnectionId id, const absl::Status& why, std::span<const std::byte>) override {
    if (!serves) Die(why.ToString());
    if (up.erase(id.index) != 0) --*ups;
  }
  cm::ConnectionManager* manager = nullptr;
  bool serves = false;
  int* ups = nullptr;
  std::set<uint32_t> up;
};

// Both say how they stand when `clients` connections are up, and end when told to.
[[noreturn]] void Serve(int clients, int in, int out) {
  Process process;
  int ups = 0;
  Counting user;
  user.ups = &ups;
  user.serves = true;
  auto manager = process.MakeManager(2 * static_cast<uint32_t>(clients), user);
  user.manager = manager.get();
  const auto port = manager->Listen("127.0.0.1", 0);
  if (!port.ok()) Die(port.status().ToString());
  Report report = {.before_bytes = ResidentBytes(), .port = *port};
  Write(out, &report, sizeof(report));
  while (ups < clients) process.Turn();
  report.after_bytes = ResidentBytes();
  report.end_ns = process.clock.NowNs();
  Write(out, &report, sizeof(report));
  Read(in, &ups, 1);
  std::_Exit(0);
}

[[noreturn]] void Ask(int clients, int in, int out) {
  Process process;
  int ups = 0;
  std::vector<Counting> users(static_cast<size_t>(clients));
  std::vector<std::unique_ptr<cm::ConnectionManager>> managers;
  for (Counting& user : users) {
    user.ups = &ups;
    managers.push_back(process.MakeManager(1, user));
    user.manager = managers.back().get();
  }
  Report report = {.before_bytes = ResidentBytes()};
  Write(out, &report, sizeof(report));
  uint16_t port = 0;
  Read(in, &port, sizeof(port));
  report.start_ns = process.clock.NowNs();
  for (auto& manager : managers) {
    const auto id = manager->Connect("127.0.0.1", port, report.start_ns + kPatienceNs, {});
    if (!id.ok()) Die(id.status().ToString());
  }
  while (ups < clients) process.Turn();
  report.end_ns = process.clock.NowNs();
  report.after_bytes = ResidentBytes();
  Write(out, &report, sizeof(report));
  Read(in, &ups, 1);
  std::_Exit(0);
}

struct Child {
  pid_t pid;
  int in, out;  // ours
};

template <typename Body>
Child Start(Body body) {
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) Die("pipe");
  const pid_t pid = fork();
  if (pid < 0) Die("fork");
  if (pid == 0) {
    close(down[1]);
    close(up[0]);
    body(down[0], up[1]);
  }
  close(down[0]);
  close(up[1]);
  return {pid, up[0], down[1]};
}

int Main(int argc, char** argv) {
  const int clients = argc > 1 ? std::atoi(argv[1]) : 2000;
  const int processes = argc > 2 ? std::atoi(argv[2]) : 4;
  if (clients < 1 || processes < 1) Die("usage: connect_storm [clients] [processes]");
  rlimit files = {};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  setenv("SOFTDC_DOMAIN", ("connect_storm." + std::to_string(getpid())).c_str(), /*overwrite=*/0);

  const Child server = Start([&](int in, int out) { Serve(clients, in, out); });
  std::vector<Child> askers;
  std::vector<int> shares;
  for (int i = 0; i < processes; ++i) {
    shares.push_back(clients / processes + (i < clients % processes ? 1 : 0));
    askers.push_back(Start([&](int in, int out) { Ask(shares.back(), in, out); }));
  }
  Report served, report;
  Read(server.in, &served, sizeof(served));
  const uint16_t port = served.port;
  for (const Child& child : askers) Read(child.in, &report, sizeof(report));
  for (const Child& child : askers) Write(child.out, &port, sizeof(port));
  int64_t start_ns = INT64_MAX, end_ns = 0, grown_bytes = 0;
  for (const Child& child : askers) {
    Read(child.in, &report, sizeof(report));
    start_ns = std::min(start_ns, report.start_ns);
    end_ns = std::max(end_ns, report.end_ns);
    grown_bytes += report.after_bytes - report.before_bytes;
  }
  Read(server.in, &served, sizeof(served));
  end_ns = std::max(end_ns, served.end_ns);
  const double seconds = static_cast<double>(end_ns - start_ns) * 1e-9;
  std::printf("%d clients in %d processes: all up after %.3f s, %.0f connections/s\n", clients,
              processes, seconds, clients / seconds);
  std::printf("resident memory per connection: server %.0f B, client %.0f B\n",
              static_cast<double>(served.after_bytes - served.before_bytes) / clients,
              static_cast<double>(grown_bytes) / clients);
  for (const Child& child : askers) Write(child.out, "q", 1);
  Write(server.out, "q", 1);
  for (const Child& child : askers) waitpid(child.pid, nullptr, 0);
  waitpid(server.pid, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc, argv); }
