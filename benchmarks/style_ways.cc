// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/style_ways.h"

#include <cstring>
#include <functional>
#include <span>
#include <utility>

#include "benchmarks/endpoint_end.h"
#include "examples/echo/echo.sluice.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/channel.h"
#include "middleware/api/stack.h"
#include "middleware/api/task.h"
#include "middleware/call/server_engine.h"

namespace sluice::benchmarks {
namespace {

using endpoint::Endpoint;
using endpoint::PeerId;
using endpoint::SendBuffer;

}  // namespace

// By its name it is seen what the server's side takes: not inlined and not renamed.
extern "C" __attribute__((noinline)) void PollServer(const std::function<void()>& poll) { poll(); }

namespace {

// ---- Messages

class RawWay final : public Way {
 public:
  RawWay() {
    server_.end.Open(&server_, true);
    client_.end.Open(&client_, true);
    const auto port = server_.end.endpoint->Listen("127.0.0.1", 0);
    CheckOk(port.status());
    CheckOk(client_.end.endpoint
                ->Connect("127.0.0.1", *port, client_.end.clock.NowNs() + 30'000'000'000)
                .status());
    while (!client_.up || !server_.up) PollBoth();
  }

  void Run(uint32_t batch) override {
    const uint64_t target = client_.received + batch;
    for (uint32_t i = 0; i < batch; ++i) client_.Send(payload_);
    client_.end.endpoint->Flush();
    while (client_.received != target) PollBoth();
  }
  bool Ready() override { return client_.HasLane() && server_.HasLane(); }

 private:
  struct Side final : endpoint::Handler {
    explicit Side(bool echo) : echoes(echo) {}
    void Send(std::span<const std::byte> bytes) {
      auto buffer = end.endpoint->Reserve(peer, static_cast<uint32_t>(bytes.size()));
      CheckOk(buffer.status());
      std::memcpy(buffer->data, bytes.data(), bytes.size());
      end.endpoint->Commit(peer, *buffer, static_cast<uint32_t>(bytes.size()), false);
      end.endpoint->Release(buffer->slot);
    }
    bool HasLane() { return end.endpoint->Counts().lanes_watched == 1; }

    void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override {
      peer = id;
      up = true;
    }
    void OnPeerDown(PeerId, const absl::Status& why) override {
      Check(!up, why.ToString().c_str());
    }
    bool OnMessage(PeerId, std::span<const std::byte> bytes) override {
      ++received;
      if (echoes) Send(bytes);
      return true;
    }
    void OnWritable(PeerId) override {}

    const bool echoes;
    EndpointEnd end;
    PeerId peer;
    bool up = false;
    uint64_t received = 0;
  };

  void PollBoth() {
    PollServer(poll_server_);
    client_.end.endpoint->Poll();
  }

  Side server_{/*echo=*/true};
  Side client_{/*echo=*/false};
  const std::function<void()> poll_server_ = [this] { server_.end.endpoint->Poll(); };
  const std::byte payload_[kMessageBytes] = {};
};

// ---- Calls

// An endpoint beside which another one is polled.
class PolledBeside final : public Endpoint {
 public:
  PolledBeside(std::unique_ptr<Endpoint> own, std::function<void()> other)
      : own_(std::move(own)), other_(std::move(other)) {}

  int Poll() override {
    PollServer(other_);
    return own_->Poll();
  }
  absl::StatusOr<uint16_t> Listen(const std::string& host, uint16_t port) override {
    return own_->Listen(host, port);
  }
  absl::StatusOr<PeerId> Connect(const std::string& host, uint16_t port, int64_t by_ns) override {
    return own_->Connect(host, port, by_ns);
  }
  absl::StatusOr<SendBuffer> Reserve(PeerId peer, uint32_t size_bytes) override {
    return own_->Reserve(peer, size_bytes);
  }
  void Commit(PeerId peer, SendBuffer buffer, uint32_t length_bytes, bool soon) override {
    own_->Commit(peer, buffer, length_bytes, soon);
  }
  endpoint::Room TryReserve(PeerId peer, uint32_t size_bytes) override {
    return own_->TryReserve(peer, size_bytes);
  }
  void CommitRoom(PeerId peer, endpoint::Room room, uint32_t length_bytes, bool soon) override {
    own_->CommitRoom(peer, room, length_bytes, soon);
  }
  SlotRange NeverReleased() const override { return own_->NeverReleased(); }
  void Repost(PeerId peer, uint32_t slot) override { own_->Repost(peer, slot); }
  void Release(uint32_t slot) override { own_->Release(slot); }
  void Cancel(PeerId peer, SendBuffer buffer) override { own_->Cancel(peer, buffer); }
  void Flush() override { own_->Flush(); }
  absl::StatusOr<endpoint::LargeBuffer> Lend(PeerId peer, uint64_t bytes, bool waits) override {
    return own_->Lend(peer, bytes, waits);
  }
  std::optional<endpoint::RemoteMemory> WhereLent(uint32_t number) override {
    return own_->WhereLent(number);
  }
  void EndLoan(uint32_t number) override { own_->EndLoan(number); }
  absl::StatusOr<uint32_t> Fetch(PeerId peer, const endpoint::RemoteMemory& from) override {
    return own_->Fetch(peer, from);
  }
  void CancelFetch(uint32_t number) override { own_->CancelFetch(number); }
  void GiveBack(uint32_t number) override { own_->GiveBack(number); }
  bool PrepareToSleep() override { return false; }  // nobody else would poll the other
  int fd() const override { return own_->fd(); }
  int64_t SleepLimitNs() const override { return own_->SleepLimitNs(); }
  void Wake() override { own_->Wake(); }
  absl::StatusOr<endpoint::PeerReport> Report(PeerId peer) const override {
    return own_->Report(peer);
  }
  endpoint::HandshakeCounts Handshakes() const override { return own_->Handshakes(); }
  absl::Status Health() const override { return own_->Health(); }
  endpoint::ConnectionCounts Connections() const override { return own_->Connections(); }
  endpoint::Counters Counts() const override { return own_->Counts(); }
  void Disconnect(PeerId peer) override { own_->Disconnect(peer); }
  void Close() override { own_->Close(); }

 private:
  const std::unique_ptr<Endpoint> own_;
  const std::function<void()> other_;
};

class StackBeside final : public Stack {
 public:
  explicit StackBeside(std::function<void()> other) : other_(std::move(other)) {}

  base::Clock* clock() override { return &end_.clock; }
  base::Random* random() override { return &random_; }
  base::LogSink* log() override { return nullptr; }
  absl::StatusOr<std::unique_ptr<Endpoint>> CreateEndpoint(const EndpointLimits&,
                                                           const Authentication&,
                                                           const std::vector<Tenant>&,
                                                           base::LogSink*,
                                                           endpoint::Handler* handler) override {
    return std::make_unique<PolledBeside>(end_.Make(handler, true), other_);
  }
  const std::string& device_choice() const override { return choice_; }
  const verbs::CapabilityReport& capabilities() const override {
    return end_.device->capabilities();
  }

 private:
  EndpointEnd end_;
  base::SystemRandom random_;
  const std::function<void()> other_;
  const std::string choice_ = "softdc0";
};

class StyleWay final : public Way {
 public:
  explicit StyleWay(std::string style) : style_(std::move(style)) {
    MethodBinder binder;
    echo_.Bind(binder);
    for (call::MethodHandler& handler : binder.TakeHandlers()) {
      CheckOk(server_.Register(std::move(handler)));
    }
    server_.Attach(end_.Open(server_.handler(), true));
    const auto port = end_.endpoint->Listen("127.0.0.1", 0);
    CheckOk(port.status());
    ChannelOptions options;
    options.spin = absl::Seconds(1);
    auto channel = Channel::ConnectOn(std::make_unique<StackBeside>([this] { server_.Poll(); }),
                                      "127.0.0.1:" + std::to_string(*port), options);
    CheckOk(channel.status());
    channel_ = *std::move(channel);
    client_ = std::make_unique<examples::echo::EchoClient>(channel_);
    request_.set_payload(std::string(kMessageBytes, 'x'));
  }
  ~StyleWay() override {
    client_.reset();
    channel_.reset();
    server_.Close();
  }

  void Run(uint32_t batch) override {
    if (style_ == "sync") {
      for (uint32_t i = 0; i < batch; ++i) {
        CheckOk(client_->Say(context_, request_, &replies_[0]));
      }
      return;
    }
    outstanding_ = batch;
    bool started = false;
    // Started inside, so that all belongs to the thread that drives.
    channel_->Drive(
        [&] {
          if (!std::exchange(started, true)) {
            for (uint32_t i = 0; i < batch; ++i) Start(i);
          }
          return outstanding_ == 0;
        },
        absl::Seconds(30));
    Check(outstanding_ == 0, "calls");
  }
  bool Ready() override {
    // By whoever drives, since that polls the server.
    uint32_t lanes = 0;
    channel_->Drive(
        [&] {
          lanes = end_.endpoint->Counts().lanes_watched;
          return true;
        },
        absl::Seconds(30));
    return lanes == 1 && channel_->endpoint_counters().lanes_watched == 1;
  }

 private:
  void Start(uint32_t i) {
    if (style_ == "callback") {
      return CheckOk(
          client_->StartSay(context_, request_, &replies_[i], [this](const absl::Status& status) {
            CheckOk(status);
            --outstanding_;
          }));
    }
    Spawn(Await(), [this](const absl::Status& status) {
      CheckOk(status);
      --outstanding_;
    });
  }
  Task<absl::Status> Await() {
    const auto reply = co_await client_->CoSay(context_, request_);
    co_return reply.status();
  }

  const std::string style_;
  base::RealClock clock_;
  examples::echo::EchoService echo_;
  call::ServerEngine server_{{}, &clock_, nullptr};
  EndpointEnd end_;
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<examples::echo::EchoClient> client_;
  CallContext context_{absl::Seconds(30)};
  examples::echo::SayRequest request_;
  examples::echo::SayReply replies_[kMaxBatch];
  uint32_t outstanding_ = 0;
};

}  // namespace

std::unique_ptr<Way> MakeStyleWay(const std::string& name) {
  if (name == "raw") return std::make_unique<RawWay>();
  if (name == "sync" || name == "callback" || name == "coroutine") {
    return std::make_unique<StyleWay>(name);
  }
  return nullptr;
}

}  // namespace sluice::benchmarks
