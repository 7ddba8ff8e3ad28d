// SPDX-License-Identifier: Apache-2.0
//
// large_messages: what moving large messages costs between two processes of this host, beside memcpy of the same bytes in the
// same run.
//
// usage: large_messages [repetitions]
//
// One flow, kept full to its window of 8 messages or 128 MiB; a message is over when the other end has read it. `moved`: the
// writer writes nothing into its message, so what remains is one copy, by the softdc device, and what Sluice does around it.
// `sent`: it copies the bytes into it first, as Flow::Send() does. `memcpy`: one copy from private memory into private memory,
// as large, between as many buffers as messages may be under way. MiB/s, medians of repetitions that take turns.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "benchmarks/die.h"
#include "middleware/api/messenger.h"

namespace sluice {
namespace {

using benchmarks::Die;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBytesOfRun = 1024 * kMiB;

MessengerOptions Options() {
  MessengerOptions options;
  options.device = "softdc0";
  return options;
}

class Sink final : public FlowHandler {
 public:
  void OnMessage(Flow, std::span<const std::byte>) override {}
  void OnClosed(Flow, const absl::Status&, const FlowTotals&) override {}
};

// The other process: takes whatever comes, until it is ended.
[[noreturn]] void Serve(int said) {
  auto messenger = Messenger::Create(Options());
  if (!messenger.ok()) Die(messenger.status().ToString());
  Sink sink;
  const auto accept = [&sink](Flow, const Offer&) { return &sink; };
  if (!(*messenger)->Accept("sink", {.window = 64}, accept).ok()) Die("accept");
  const auto port = (*messenger)->Listen("127.0.0.1:0");
  if (!port.ok()) Die(port.status().ToString());
  const uint16_t number = *port;
  if (write(said, &number, sizeof(number)) != sizeof(number)) Die("pipe");
  (*messenger)->Drive([] { return getppid() == 1; }, absl::InfiniteDuration());
  std::exit(0);
}

class Writer final : public FlowHandler {
 public:
  Writer(Messenger* messenger, const std::string& server) : messenger_(messenger) {
    auto flow = messenger_->Open(server, "sink", {.window = 64, .report_delivery = true}, this);
    if (!flow.ok()) Die(flow.status().ToString());
    flow_ = *flow;
    if (!messenger_->Drive([this] { return open_; }, kPatience)) Die("the flow does not open");
  }
  // Bytes a second. `from` empty: nothing is written into the messages.
  double Run(uint64_t size, uint64_t window, uint64_t messages,
             const std::vector<std::byte>& from) {
    const absl::Time begin = absl::Now();
    const uint64_t end = sent_ + messages;
    const auto fill = [&] {
      while (sent_ < end && sent_ - delivered_ < window) {
        const auto buffer = flow_.Reserve(static_cast<uint32_t>(size));
        if (!buffer.ok()) {
          if (!absl::IsResourceExhausted(buffer.status())) Die(buffer.status().ToString());
          return;
        }
        if (!from.empty()) std::memcpy(buffer->data, from.data(), size);
        flow_.Commit(*buffer, static_cast<uint32_t>(size));
        ++sent_;
      }
    };
    const auto done = [&] {
      fill();
      return delivered_ == end || closed_;
    };
    if (!messenger_->Drive(done, kPatience) || closed_) Die("the flow does not go on");
    return static_cast<double>(size * messages) / absl::ToDoubleSeconds(absl::Now() - begin);
  }

 private:
  void OnOpen(Flow) override { open_ = true; }
  void OnMessage(Flow, std::span<const std::byte>) override {}
  void OnDelivered(Flow, uint64_t total) override { delivered_ = total; }
  void OnClosed(Flow, const absl::Status& why, const FlowTotals&) override {
    std::fprintf(stderr, "%s\n", why.ToString().c_str());
    closed_ = true;
  }

  Messenger* const messenger_;
  Flow flow_;
  bool open_ = false;
  bool closed_ = false;
  uint64_t sent_ = 0;
  uint64_t delivered_ = 0;
};

double Memcpy(uint64_t size, uint64_t window, uint64_t messages,
              const std::vector<std::byte>& from) {
  static std::vector<std::byte> to;
  if (to.size() < size * window) to.resize(size * window);
  const absl::Time begin = absl::Now();
  for (uint64_t i = 0; i < messages; ++i) {
    std::memcpy(to.data() + i % window * size, from.data(), size);
    asm volatile("" : : "r"(to.data()) : "memory");
  }
  return static_cast<double>(size * messages) / absl::ToDoubleSeconds(absl::Now() - begin);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int repetitions) {
  int said[2];
  if (pipe(said) != 0) Die("pipe");
  const pid_t server = fork();
  if (server < 0) Die("fork");
  if (server == 0) Serve(said[1]);
  uint16_t port = 0;
  if (read(said[0], &port, sizeof(port)) != sizeof(port)) Die("the other process does not listen");
  auto messenger = Messenger::Create(Options());
  if (!messenger.ok()) Die(messenger.status().ToString());
  Writer writer(messenger->get(), "127.0.0.1:" + std::to_string(port));

  std::printf("%10s %7s %10s %10s %10s %13s %12s\n", "bytes", "window", "memcpy", "moved", "sent",
              "moved/memcpy", "sent/memcpy");
  for (uint64_t size = 64 << 10; size <= 64 * kMiB; size *= 4) {
    const uint64_t window = std::clamp<uint64_t>(128 * kMiB / size, 1, 8);
    const uint64_t messages = std::max(kBytesOfRun / size, window);
    const std::vector<std::byte> from(size, std::byte{'x'});
    std::vector<double> copied, moved, sent;
    for (int i = 0; i < repetitions + 1; ++i) {  // the first warms up
      const double a = Memcpy(size, window, messages, from);
      const double b = writer.Run(size, window, messages, {});
      const double c = writer.Run(size, window, messages, from);
      if (i == 0) continue;
      copied.push_back(a / kMiB);
      moved.push_back(b / kMiB);
      sent.push_back(c / kMiB);
    }
    std::printf("%10lu %7lu %10.0f %10.0f %10.0f %13.2f %12.2f\n", size, window, Median(copied),
                Median(moved), Median(sent), Median(moved) / Median(copied),
                Median(sent) / Median(copied));
    std::fflush(stdout);
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc > 1 ? std::atoi(argv[1]) : 3); }
