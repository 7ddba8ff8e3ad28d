// SPDX-License-Identifier: Apache-2.0
//
// relay: a server that hands each call on to another one, and a clock beside it, all in one loop of one thread.
//
//   relay --listen=127.0.0.1:7490 --upstream=127.0.0.1:7471
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "examples/echo/echo.sluice.h"
#include "examples/own_loop/event_loop.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"

ABSL_FLAG(std::string, listen, "127.0.0.1:7490", "host:port; port 0 takes a free one");
ABSL_FLAG(std::string, upstream, "127.0.0.1:7471", "host:port of an echo_server");
ABSL_FLAG(std::string, device, "auto", "RDMA device: auto, or a name that sluice_info shows");

namespace {

using sluice::examples::echo::EchoClient;
using sluice::examples::echo::EchoCoServiceBase;
using sluice::examples::echo::SayReply;
using sluice::examples::echo::SayRequest;
using sluice::examples::own_loop::EventLoop;

// No locks: its coroutines, the upstream's answers and the clock all run on one thread.
class Relay final : public EchoCoServiceBase {
 public:
  explicit Relay(std::shared_ptr<sluice::Channel> upstream) : upstream_(std::move(upstream)) {}

  sluice::Task<absl::Status> Say(sluice::ServerContext& server, const SayRequest& request,
                                 SayReply* reply) override {
    ++calls_;
    sluice::CallContext context = sluice::CallContext::FromServer(server);
    absl::StatusOr<SayReply> answer = co_await upstream_.CoSay(context, request);
    if (answer.ok()) *reply = *std::move(answer);
    co_return answer.status();
  }
  uint64_t calls() const { return calls_; }

 private:
  EchoClient upstream_;
  uint64_t calls_ = 0;
};

// A descriptor that is readable once a second.
int EverySecond() {
  const int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  const itimerspec second = {{1, 0}, {1, 0}};
  timerfd_settime(fd, 0, &second, nullptr);
  return fd;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "relay: %s\n",
               status.ToString(absl::StatusToStringMode::kWithNoExtraData).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  sigset_t signals;  // blocked before any thread starts
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  absl::SetProgramUsageMessage("hands calls on to another server, in one loop of one thread");
  absl::ParseCommandLine(argc, argv);

  sluice::ChannelOptions channel_options;
  channel_options.device = absl::GetFlag(FLAGS_device);
  channel_options.driving = sluice::Driving::kCaller;
  auto upstream = sluice::Channel::Connect(absl::GetFlag(FLAGS_upstream), channel_options);
  if (!upstream.ok()) return Fail(upstream.status());

  sluice::ServerOptions server_options;
  server_options.device = absl::GetFlag(FLAGS_device);
  server_options.driving = sluice::Driving::kCaller;
  auto server = sluice::Server::Create(server_options);
  if (!server.ok()) return Fail(server.status());
  Relay relay(*upstream);
  if (absl::Status status = (*server)->Register(&relay); !status.ok()) return Fail(status);
  const std::string address = absl::GetFlag(FLAGS_listen);
  auto port = (*server)->Listen(address);
  if (!port.ok()) return Fail(port.status());
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);

  EventLoop loop;
  loop.Drive(server->get());
  loop.Drive(upstream->get());
  const int clock_fd = EverySecond();
  uint64_t told = 0;
  loop.Watch(clock_fd, [&] {
    uint64_t ticks = 0;
    [[maybe_unused]] const ssize_t got = read(clock_fd, &ticks, sizeof(ticks));
    if (relay.calls() == told) return;
    told = relay.calls();
    std::printf("%llu calls handed on\n", static_cast<unsigned long long>(told));
    std::fflush(stdout);
  });
  const int signal_fd = signalfd(-1, &signals, SFD_CLOEXEC);
  loop.Watch(signal_fd, [&] {
    signalfd_siginfo which;
    [[maybe_unused]] const ssize_t got = read(signal_fd, &which, sizeof(which));
    (*server)->BeginDrain(absl::Seconds(2));  // calls under way still need the loop, and upstream
  });
  loop.Run([&] { return (*server)->drain_phase() >= sluice::call::DrainPhase::kDrained; });
  absl::Status end = (*server)->Shutdown(absl::Seconds(1));
  return end.ok() ? 0 : Fail(end);
}
