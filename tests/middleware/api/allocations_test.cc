// SPDX-License-Identifier: Apache-2.0
//
// What a call allocates on the thread that makes it and on the server's, in each style, over the software NIC. Calls are made until
// a whole round of them allocates what is expected and no more: a lane that comes, or a message that keeps a connection alive, may
// be in the rounds before.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"
#include "middleware/api/task.h"

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

// All of them, so that sanitizers, which have their own, agree about what is whose.
void* operator new(size_t size) {
  ++allocations;
  void* const at = std::malloc(size);
  if (at == nullptr) std::abort();
  return at;
}
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept { return operator new(size); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, const std::nothrow_t&) noexcept { std::free(at); }
void operator delete[](void* at, const std::nothrow_t&) noexcept { std::free(at); }

namespace sluice {
namespace {

using examples::echo::EchoClient;
using examples::echo::EchoCoServiceBase;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr int kRound = 32;  // calls
// Frames of coroutines are used again, but where AddressSanitizer watches (frame_memory.h).
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SLUICE_CLANG_ASAN
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(SLUICE_CLANG_ASAN)
constexpr int kTwoFrames = 2;
#else
constexpr int kTwoFrames = 0;
#endif

// Each request is noted with what its thread had allocated by then.
class Plain final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    seen = allocations;
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
  std::atomic<uint64_t> seen{0};
};

class Coroutine final : public EchoCoServiceBase {
 public:
  Task<absl::Status> Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    seen = allocations;
    reply->set_payload(request.payload());
    co_return absl::OkStatus();
  }
  std::atomic<uint64_t> seen{0};
};

class AllocationsTest : public testing::Test {
 protected:
  void Open(Service* service) {
    ServerOptions server_options;
    server_options.device = "softdc0";
    auto server = Server::Create(server_options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(service).ok());
    const auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    ChannelOptions options;
    options.device = "softdc0";
    options.spin = absl::Seconds(1);
    auto channel = Channel::Connect("127.0.0.1:" + std::to_string(*port), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
    client_ = std::make_unique<EchoClient>(channel_);
    request_.set_payload(std::string(64, 'x'));
  }

  void Say() { ASSERT_TRUE(client_->Say(context_, request_, &reply_).ok()); }

  // Rounds of `call`, until `count()` has grown by `expected` for each call of one. What the last one allocated for a call.
  double Settle(absl::FunctionRef<void()> call, absl::FunctionRef<uint64_t()> count, int expected) {
    const absl::Time give_up = absl::Now() + absl::Seconds(40);
    uint64_t grown = 0;
    do {
      const uint64_t before = count();
      for (int i = 0; i < kRound && !HasFatalFailure(); ++i) call();
      grown = count() - before;
    } while (grown != static_cast<uint64_t>(expected) * kRound && absl::Now() < give_up &&
             !HasFatalFailure());
    return static_cast<double>(grown) / kRound;
  }
  static uint64_t Mine() { return allocations; }

  // Starts one inside, so that all of it is this thread's, and drives until it has ended.
  void DriveOne(absl::FunctionRef<void()> start) {
    bool started = false;
    ended_ = false;
    ASSERT_TRUE(channel_->Drive(
        [&] {
          if (!started) {
            started = true;
            start();
          }
          return ended_;
        },
        absl::Seconds(30)));
  }
  Task<absl::Status> Await() {
    const auto reply = co_await client_->CoSay(context_, request_);
    co_return reply.status();
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<EchoClient> client_;
  CallContext context_{absl::Seconds(30)};
  SayRequest request_;
  SayReply reply_;
  bool ended_ = false;
};

TEST_F(AllocationsTest, CallThatIsWaitedForAllocatesNothingAtEitherEnd) {
  Plain plain;
  Open(&plain);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(Settle([&] { Say(); }, Mine, 0), 0);
  EXPECT_EQ(Settle([&] { Say(); }, [&] { return plain.seen.load(); }, 0), 0);
  server_.reset();
}

TEST_F(AllocationsTest, CallbackAllocatesNothing) {
  Plain plain;
  Open(&plain);
  ASSERT_FALSE(HasFatalFailure());
  const auto call = [&] {
    DriveOne([&] {
      const absl::Status started =
          client_->StartSay(context_, request_, &reply_, [this](const absl::Status& status) {
            EXPECT_TRUE(status.ok()) << status;
            ended_ = true;
          });
      EXPECT_TRUE(started.ok()) << started;
    });
  };
  EXPECT_EQ(Settle(call, Mine, 0), 0);
  server_.reset();
}

TEST_F(AllocationsTest, CoroutineAllocatesTheReply) {
  Plain plain;
  Open(&plain);
  ASSERT_FALSE(HasFatalFailure());
  const auto call = [&] {
    DriveOne([&] {
      Spawn(Await(), [this](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        ended_ = true;
      });
    });
  };
  // Of the reply, which is a new one: its string and what holds that. The frames are Await()'s and Spawn()'s.
  EXPECT_EQ(Settle(call, Mine, 2 + kTwoFrames), 2 + kTwoFrames);
  server_.reset();
}

TEST_F(AllocationsTest, HandlerThatIsACoroutineAllocatesItsContext) {
  Coroutine coroutine;
  Open(&coroutine);
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_EQ(Settle([&] { Say(); }, [&] { return coroutine.seen.load(); }, 1 + kTwoFrames),
            1 + kTwoFrames);
  server_.reset();
}

}  // namespace
}  // namespace sluice
