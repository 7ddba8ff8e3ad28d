// SPDX-License-Identifier: Apache-2.0
//
// Connect storm: many endpoints in a few processes connect to one server process at once, on the
// software NIC. Connections per second, and memory per connection.
//   connect_storm [clients] [processes]
// Each client is a whole endpoint with queues and commands of its own; those of one process take turns
// on one thread. They share its device: an endpoint should have that alone, because one of them reads its
// events, but here none comes. Options are small but for those that a crowd needs.
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "benchmarks/die.h"
#include "transport/base/clock.h"
#include "transport/base/random.h"
#include "transport/device/device.h"
#include "transport/endpoint/create.h"
#include "transport/poller/commands.h"
#include "transport/softdc/verbs.h"

namespace sluice::endpoint {
namespace {

using benchmarks::Die;

constexpr int64_t kPatienceNs = 120'000'000'000;
constexpr int kTickMs = 10;

// What a process says to the one that started it: when it is ready, and when all are up.
struct Report {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t empty_bytes = 0;  // resident: before there was an endpoint
  int64_t ready_bytes = 0;  // with endpoints
  int64_t up_bytes = 0;     // with connections
  uint64_t retries = 0;
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

class Node final : public Handler {
 public:
  Node(const Options& options, device::Device& device, std::unique_ptr<poller::Commands> commands,
       int* ups)
      : commands_(std::move(commands)), ups_(ups) {
    auto made = CreateEndpoint(options, device, clock_, random_, *commands_, this);
    if (!made.ok()) Die(made.status().ToString());
    endpoint_ = std::move(*made);
  }
  Endpoint& endpoint() { return *endpoint_; }
  void PollUntilIdle() {
    do {
      while (endpoint_->Poll() != 0) continue;
    } while (!endpoint_->PrepareToSleep());
  }

  void OnPeerUp(PeerId, const PeerInfo&) override { ++*ups_; }
  void OnPeerDown(PeerId, const absl::Status& why) override { Die(why.ToString()); }
  bool OnMessage(PeerId, std::span<const std::byte>) override { return true; }
  void OnWritable(PeerId) override {}

 private:
  base::RealClock clock_;
  base::SystemRandom random_;
  std::unique_ptr<poller::Commands> commands_;
  std::unique_ptr<Endpoint> endpoint_;
  int* const ups_;
};

// The nodes of one process, and its talk with the one that started it.
class Process {
 public:
  Process(int in, int out) : in_(in), out_(out), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    Watch(in, nullptr);
    auto opened = device::Device::Open("softdc0", {&softdc::Verbs()});
    if (!opened.ok()) Die(opened.status().ToString());
    device_ = std::move(*opened);
    report_.empty_bytes = ResidentBytes();
  }
  template <typename Commands>
  void Add(const Options& options) {
    nodes_.push_back(
        std::make_unique<Node>(options, *device_, std::make_unique<Commands>(), &ups_));
    Node* node = nodes_.back().get();
    Watch(node->endpoint().fd(), node);
    node->PollUntilIdle();
  }
  void Ready() {
    report_.ready_bytes = ResidentBytes();
    Write(out_, &report_, sizeof(report_));
  }
  // Says when so many connections are up, and ends when told to.
  [[noreturn]] void Run(int connections) {
    bool told = false;
    for (;;) {
      Turn();
      if (told || ups_ != connections) continue;
      told = true;
      report_.end_ns = clock_.NowNs();
      report_.up_bytes = ResidentBytes();
      for (const auto& node : nodes_) report_.retries += node->endpoint().Connections().retries;
      Write(out_, &report_, sizeof(report_));
    }
  }
  Report& report() { return report_; }
  const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  base::Clock& clock() { return clock_; }

 private:
  void Watch(int fd, Node* node) {
    epoll_event event = {.events = EPOLLIN, .data = {.ptr = node}};
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) Die("epoll_ctl");
  }
  void Turn() {
    epoll_event events[64];
    const int count = epoll_wait(epoll_, events, 64, kTickMs);
    for (int i = 0; i < count; ++i) {
      Node* node = static_cast<Node*>(events[i].data.ptr);
      if (node == nullptr) std::_Exit(0);
      node->PollUntilIdle();
    }
    if (clock_.NowNs() < timers_ns_) return;
    timers_ns_ = clock_.NowNs() + int64_t{kTickMs} * 1'000'000;
    for (const auto& node : nodes_) {
      if (node->endpoint().SleepLimitNs() == 0) node->PollUntilIdle();
    }
  }

  const int in_, out_, epoll_;
  base::RealClock clock_;
  Report report_;
  int ups_ = 0;
  int64_t timers_ns_ = 0;
  std::unique_ptr<device::Device> device_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

[[noreturn]] void Serve(uint32_t clients, int in, int out) {
  Options options;
  options.max_message_bytes = 256;
  options.credits_per_peer = 2;
  options.srq_size = std::max(2 * clients, 64u);
  options.max_peers = clients;
  options.max_half_open = clients;
  options.accept_timeout_ns = kPatienceNs;
  Process process(in, out);
  process.Add<poller::ThreadCommands>(options);
  const auto port = process.nodes()[0]->endpoint().Listen("127.0.0.1", 0);
  if (!port.ok()) Die(port.status().ToString());
  process.report().port = *port;
  process.Ready();
  process.Run(static_cast<int>(clients));
}

[[noreturn]] void Ask(uint32_t clients, int in, int out) {
  Options options;
  options.max_message_bytes = 256;
  options.credits_per_peer = 2;
  options.srq_size = 16;
  options.send_buffers = 64;
  options.max_peers = 1;
  options.dci_count = 1;
  options.dci_depth = 64;
  Process process(in, out);
  for (uint32_t i = 0; i < clients; ++i) process.Add<poller::InlineCommands>(options);
  process.Ready();
  uint16_t port = 0;
  Read(in, &port, sizeof(port));
  process.report().start_ns = process.clock().NowNs();
  for (const auto& node : process.nodes()) {
    const auto id =
        node->endpoint().Connect("127.0.0.1", port, process.report().start_ns + kPatienceNs);
    if (!id.ok()) Die(id.status().ToString());
    node->PollUntilIdle();
  }
  process.Run(static_cast<int>(clients));
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

  const Child server =
      Start([&](int in, int out) { Serve(static_cast<uint32_t>(clients), in, out); });
  std::vector<Child> askers;
  for (int i = 0; i < processes; ++i) {
    const int share = clients / processes + (i < clients % processes ? 1 : 0);
    askers.push_back(Start([&](int in, int out) { Ask(static_cast<uint32_t>(share), in, out); }));
  }
  Report served, report;
  Read(server.in, &served, sizeof(served));
  const uint16_t port = served.port;
  for (const Child& child : askers) Read(child.in, &report, sizeof(report));
  for (const Child& child : askers) Write(child.out, &port, sizeof(port));
  int64_t start_ns = INT64_MAX, end_ns = 0, made_bytes = 0, grown_bytes = 0;
  uint64_t retries = 0;
  for (const Child& child : askers) {
    Read(child.in, &report, sizeof(report));
    start_ns = std::min(start_ns, report.start_ns);
    end_ns = std::max(end_ns, report.end_ns);
    made_bytes += report.ready_bytes - report.empty_bytes;
    grown_bytes += report.up_bytes - report.ready_bytes;
    retries += report.retries;
  }
  Read(server.in, &served, sizeof(served));
  end_ns = std::max(end_ns, served.end_ns);
  const double seconds = static_cast<double>(end_ns - start_ns) * 1e-9;
  std::printf("%d clients in %d processes: all up after %.3f s, %.0f connections/s, %llu retries\n",
              clients, processes, seconds, clients / seconds,
              static_cast<unsigned long long>(retries));
  std::printf("resident memory per connection: server %.0f B, client %.0f B\n",
              static_cast<double>(served.up_bytes - served.ready_bytes) / clients,
              static_cast<double>(grown_bytes) / clients);
  std::printf("resident memory per idle client endpoint: %.0f B\n",
              static_cast<double>(made_bytes) / clients);
  for (const Child& child : askers) Write(child.out, "q", 1);
  Write(server.out, "q", 1);
  for (const Child& child : askers) waitpid(child.pid, nullptr, 0);
  waitpid(server.pid, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace sluice::endpoint

int main(int argc, char** argv) { return sluice::endpoint::Main(argc, argv); }
