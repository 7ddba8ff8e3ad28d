// SPDX-License-Identifier: Apache-2.0
//
// ChatService: a service with a method of each shape, as coroutines, and the world it runs in: a server and a channel over the
// fake network.
#ifndef SLUICE_TESTS_MIDDLEWARE_API_CHAT_SERVICE_H_
#define SLUICE_TESTS_MIDDLEWARE_API_CHAT_SERVICE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "middleware/api/channel.h"
#include "middleware/api/server.h"
#include "middleware/api/signal.h"
#include "tests/middleware/api/chat.sluice.h"
#include "tests/support/fake_stack.h"

namespace sluice::testing_support {

using tests::chat::ChatClient;
using tests::chat::ChatCoServiceBase;
using tests::chat::ChatServiceBase;
using tests::chat::Line;

// A request that stays valid until the process ends, as a call whose end nobody waits for needs.
inline const Line& Lasting(const std::string& text) {
  static std::mutex mutex;
  static auto* const lines = new std::map<std::string, Line>;
  std::lock_guard lock(mutex);
  const auto [line, made] = lines->try_emplace(text);
  if (made) line->second.set_text(text);
  return line->second;
}

// Opened once, waited for by anybody.
class Gate {
 public:
  void Open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_; });
  }
  // False: it was not opened within that time.
  bool WaitFor(absl::Duration time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, absl::ToChronoNanoseconds(time), [this] { return open_; });
  }
  bool open() {
    std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

// A status as an application makes one: with a long text and payloads of its own.
inline absl::Status OutOfStock() {
  absl::Status status = absl::FailedPreconditionError("out of stock " + std::string(5000, 'x'));
  status.SetPayload("type.googleapis.com/shop.OutOfStock", absl::Cord(std::string("\0\xff", 2)));
  status.SetPayload("type.googleapis.com/shop.Hint", absl::Cord(std::string(6000, 'h')));
  return status;
}

class ChatService final : public ChatCoServiceBase {
 public:
  // "wait" is answered when the receiver no longer waits for it.
  Task<absl::Status> Say(ServerContext& context, const Line& request, Line* reply) override {
    if (request.text() == "wait") {
      waiting.Open();
      co_await never_.Wait(context.stop_token());
      stopped.Open();
      co_return absl::CancelledError("nobody waits");
    }
    if (request.text() == "fail") co_return absl::NotFoundError("nothing of that name");
    if (request.text() == "order") co_return OutOfStock();
    const Metadata& metadata = context.metadata();
    if (const auto who = metadata.Find("who"); who.has_value()) {
      reply->set_text(std::string(*who));
      EXPECT_TRUE(context.AddReplyMetadata("seen", *who).ok());
      co_return absl::OkStatus();
    }
    reply->set_text(request.text());
    co_return absl::OkStatus();
  }
  // `number` lines; negative: until nobody reads.
  Task<absl::Status> Tail(ServerContext&, const Line& request, ServerWriter<Line> writer) override {
    Line line;
    for (int64_t i = 0; request.number() < 0 || i < request.number(); ++i) {
      line.set_number(i);
      line.set_text(request.text() == "large" ? std::string(1 << 20, 'x') : request.text());
      if (!co_await writer.Write(line)) {
        if (request.text() == "large") co_return absl::OkStatus();  // the writer's error ends it
        stopped.Open();
        co_return absl::CancelledError("nobody reads");
      }
      written.store(i + 1);
    }
    if (request.text() == "order") co_return OutOfStock();
    co_return request.text() == "fail" ? absl::DataLossError("the rest is lost") : absl::OkStatus();
  }
  Task<absl::Status> Sum(ServerContext& context, ServerReader<Line> reader, Line* reply) override {
    Line line;
    int64_t sum = 0;
    while (co_await reader.Read(&line)) {
      if (line.text() == "enough") co_return absl::OutOfRangeError("no more");
      sum += line.number();
    }
    if (context.cancelled()) {
      stopped.Open();
      co_return absl::CancelledError("nobody waits");
    }
    reply->set_number(sum);
    co_return absl::OkStatus();
  }
  Task<absl::Status> Talk(ServerContext&, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    Line line;
    while (co_await reader.Read(&line)) {
      if (!co_await writer.Write(line)) break;
    }
    co_return absl::OkStatus();
  }

  Gate waiting;
  Gate stopped;
  std::atomic<int64_t> written{0};

 private:
  Signal never_;
};

class ChatWorld : public ::testing::Test {
 protected:
  static constexpr char kAddress[] = "fake-host:7471";

  void SetUp() override { Start(&chat_); }
  void TearDown() override {
    channel_.reset();
    server_.reset();
  }
  void Start(Service* service, const RegisterOptions& options = {}) {
    if (server_ != nullptr) TearDown();
    FakeNetwork::Options fake;
    fake.credits = credits_;
    auto server = Server::CreateOn(std::make_unique<FakeStack>(&network_, fake, &server_end_),
                                   server_options_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(service, options).ok());
    ASSERT_TRUE(server_->Listen(kAddress).ok());
    channel_ = Connect();
  }
  std::shared_ptr<Channel> Connect() {
    FakeNetwork::Options fake;
    fake.credits = credits_;
    auto channel = Channel::ConnectOn(std::make_unique<FakeStack>(&network_, fake, &client_end_),
                                      kAddress, channel_options_);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return channel.ok() ? *channel : nullptr;
  }
  ChatClient client() { return ChatClient(channel_); }
  static Line Text(const std::string& text, int64_t number = 0) {
    Line line;
    line.set_text(text);
    line.set_number(number);
    return line;
  }
  // The thread works for the channel until it is so.
  void DriveUntil(std::function<bool()> done) {
    ASSERT_TRUE(channel_->Drive([&] { return done(); }, absl::Seconds(60)));
  }

  int credits_ = 64;
  ServerOptions server_options_;
  ChannelOptions channel_options_;
  FakeNetwork network_;
  ChatService chat_;
  FakeEndpoint* server_end_ = nullptr;
  FakeEndpoint* client_end_ = nullptr;
  std::unique_ptr<Server> server_;
  std::shared_ptr<Channel> channel_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_API_CHAT_SERVICE_H_
