// SPDX-License-Identifier: Apache-2.0
//
// attachments: what a large attachment costs between two processes of this host, beside memcpy of the same bytes in the same run.
//
// usage: attachments [repetitions]
//
// Calls with callbacks, as many under way as 8 or 128 MiB; one is over when its reply has come, and another takes its place. `up
// copied`: the caller's own bytes, which Sluice copies into registered memory. `up buffer`: bytes that stand in a Buffer, so
// what remains is one copy by the softdc device, and what Sluice does around it. `down copied`: the handler gives a string,
// which it has to copy for that, and Sluice copies once more; `down buffer`: a Buffer made for each reply, into which nothing is
// written. `memcpy`: one copy from private memory into private memory, between as many buffers. MiB/s, medians of
// repetitions that take turns.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "benchmarks/die.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"

namespace sluice {
namespace {

using benchmarks::Die;

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kBytesOfRun = 512 * kMiB;

// "s<bytes>": answers with a string; "b<bytes>": with a buffer; else with nothing.
class Source final : public EchoServiceBase {
  absl::Status Say(ServerContext& context, const SayRequest& request, SayReply*) override {
    const std::string& wanted = request.payload();
    if (wanted.empty()) return absl::OkStatus();
    const size_t size = std::strtoull(wanted.c_str() + 1, nullptr, 10);
    if (wanted[0] == 's') {
      if (stored_.size() != size) stored_.assign(size, 'x');
      context.set_reply_attachment(std::string(stored_));
      return absl::OkStatus();
    }
    auto buffer = context.MakeBuffer(size);
    if (!buffer.ok()) return buffer.status();
    context.set_reply_attachment(*std::move(buffer));
    return absl::OkStatus();
  }
  std::string stored_;
};

[[noreturn]] void Serve(int said) {
  Source source;
  ServerOptions options;
  options.device = "softdc0";
  auto server = Server::Create(options);
  if (!server.ok()) Die(server.status().ToString());
  if (!(*server)->Register(&source).ok()) Die("register");
  const auto port = (*server)->Listen("127.0.0.1:0");
  if (!port.ok()) Die(port.status().ToString());
  const uint16_t number = *port;
  if (write(said, &number, sizeof(number)) != sizeof(number)) Die("pipe");
  for (;;) pause();
}

// One call after another.
struct Slot {
  Slot() : context(kPatience) {}
  CallContext context;
  SayRequest request;
  SayReply reply;
};

class Caller {
 public:
  explicit Caller(const std::string& server) {
    ChannelOptions options;
    options.device = "softdc0";
    auto channel = Channel::Connect(server, options);
    if (!channel.ok()) Die(channel.status().ToString());
    channel_ = *channel;
  }
  enum class Way { kUpCopied, kUpBuffer, kDownCopied, kDownBuffer };
  // Bytes a second.
  double Run(Way way, uint64_t window, uint64_t calls, const std::vector<std::byte>& from) {
    std::vector<std::unique_ptr<Slot>> slots;
    for (uint64_t i = 0; i < window; ++i) {
      Slot& slot = *slots.emplace_back(std::make_unique<Slot>());
      if (way == Way::kUpCopied) slot.context.set_attachment(from);
      if (way == Way::kUpBuffer) slot.context.set_attachment(Made(from));
      if (way == Way::kDownCopied) slot.request.set_payload("s" + std::to_string(from.size()));
      if (way == Way::kDownBuffer) slot.request.set_payload("b" + std::to_string(from.size()));
    }
    left_ = calls;
    under_way_ = 0;
    const absl::Time begin = absl::Now();
    bool started = false;
    const auto done = [&] {  // on this thread, as the callbacks then
      for (auto& slot : slots) {
        if (!started) Start(slot.get());
      }
      started = true;
      return left_ + under_way_ == 0;
    };
    if (!channel_->Drive(done, kPatience)) Die("no end");
    return static_cast<double>(from.size() * calls) / absl::ToDoubleSeconds(absl::Now() - begin);
  }
  ChannelSnapshot Snapshot() { return channel_->Snapshot(); }

 private:
  Buffer Made(const std::vector<std::byte>& from) {
    for (int i = 0; i < 1000; ++i) {  // memory of another size may be on its way out
      auto buffer = channel_->MakeBuffer(from.size());
      if (buffer.ok()) {
        std::copy(from.begin(), from.end(), buffer->data());
        return *std::move(buffer);
      }
      channel_->Drive([] { return false; }, absl::Milliseconds(1));
    }
    Die("no memory");
  }
  void Start(Slot* slot) {
    if (left_ == 0) return;
    --left_;
    ++under_way_;
    const absl::Status started = EchoClient(channel_).StartSay(
        slot->context, slot->request, &slot->reply, [this, slot](const absl::Status& status) {
          if (!status.ok()) Die(status.ToString());
          --under_way_;
          Start(slot);
        });
    if (!started.ok()) Die(started.ToString());
  }

  std::shared_ptr<Channel> channel_;
  uint64_t left_ = 0;
  uint64_t under_way_ = 0;
};

double Memcpy(uint64_t window, uint64_t times, const std::vector<std::byte>& from) {
  static std::vector<std::byte> to;
  if (to.size() < from.size() * window) to.resize(from.size() * window);
  const absl::Time begin = absl::Now();
  for (uint64_t i = 0; i < times; ++i) {
    std::memcpy(to.data() + i % window * from.size(), from.data(), from.size());
    asm volatile("" : : "r"(to.data()) : "memory");
  }
  return static_cast<double>(from.size() * times) / absl::ToDoubleSeconds(absl::Now() - begin);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2] / kMiB;
}

int Main(int repetitions) {
  int said[2];
  if (pipe(said) != 0) Die("pipe");
  const pid_t server = fork();
  if (server < 0) Die("fork");
  if (server == 0) Serve(said[1]);
  uint16_t port = 0;
  if (read(said[0], &port, sizeof(port)) != sizeof(port)) Die("the other process does not listen");
  Caller caller("127.0.0.1:" + std::to_string(port));

  std::printf("%10s %7s %8s | %9s %9s | %11s %11s | of memcpy\n", "bytes", "window", "memcpy",
              "up copied", "up buffer", "down copied", "down buffer");
  using Way = Caller::Way;
  for (uint64_t size = 64 << 10; size <= 64 * kMiB; size *= 4) {
    const uint64_t window = std::clamp<uint64_t>(64 * kMiB / size, 1, 8);
    const uint64_t calls = std::max(kBytesOfRun / size, 4 * window);
    const std::vector<std::byte> from(size, std::byte{'x'});
    std::vector<double> rates[5];
    for (int i = 0; i < repetitions + 1; ++i) {  // the first warms up
      double one[5] = {Memcpy(window, calls, from)};
      for (int way = 0; way < 4; ++way) {
        one[way + 1] = caller.Run(static_cast<Way>(way), window, calls, from);
      }
      if (i == 0) continue;
      for (int way = 0; way < 5; ++way) rates[way].push_back(one[way]);
    }
    double m[5];
    for (int way = 0; way < 5; ++way) m[way] = Median(rates[way]);
    std::printf("%10lu %7lu %8.0f | %9.0f %9.0f | %11.0f %11.0f | %.2f %.2f, %.2f %.2f\n", size,
                window, m[0], m[1], m[2], m[3], m[4], m[1] / m[0], m[2] / m[0], m[3] / m[0],
                m[4] / m[0]);
    std::fflush(stdout);
  }
  const auto sessions = caller.Snapshot().sessions;
  std::printf("large messages sent %lu, of those where they stood %lu; received %lu, kept %lu\n",
              sessions.large_sent, sessions.large_in_place, sessions.large_received,
              sessions.large_held);
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) { return sluice::Main(argc > 1 ? std::atoi(argv[1]) : 3); }
