// SPDX-License-Identifier: Apache-2.0
//
// A channel with several servers, as a user has it: lists, files, resolvers, threads included.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "middleware/api/resolver.h"
#include "middleware/api/server.h"
#include "tests/support/fake_stack.h"

namespace sluice {
namespace servers_test {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;
using testing_support::FakeEndpoint;
using testing_support::FakeNetwork;
using testing_support::FakeStack;

// Says who it is, and which attempt it saw.
class NamedEcho final : public EchoServiceBase {
 public:
  explicit NamedEcho(std::string name) : name_(std::move(name)) {}
  absl::Status Say(ServerContext& context, const SayRequest&, SayReply* reply) override {
    reply->set_payload(name_ + " " + std::to_string(context.attempt()));
    return absl::OkStatus();
  }

 private:
  const std::string name_;
};

class ServersTest : public ::testing::Test {
 protected:
  struct Node {
    explicit Node(const std::string& name) : service(name) {}
    NamedEcho service;
    FakeEndpoint* end = nullptr;
    std::unique_ptr<Server> server;
  };

  Node* StartServer(const std::string& address) {
    nodes_.push_back(std::make_unique<Node>(address));
    Node* node = nodes_.back().get();
    auto server = Server::CreateOn(
        std::make_unique<FakeStack>(&network_, FakeNetwork::Options(), &node->end));
    EXPECT_TRUE(server.ok()) << server.status();
    node->server = *std::move(server);
    EXPECT_TRUE(node->server->Register(&node->service).ok());
    EXPECT_TRUE(node->server->Listen(address).ok());
    return node;
  }
  absl::StatusOr<std::shared_ptr<Channel>> Connect(const std::string& address,
                                                   ChannelOptions options = {}) {
    return Channel::ConnectOn(std::make_unique<FakeStack>(&network_, FakeNetwork::Options()),
                              address, options);
  }
  static std::string Say(const std::shared_ptr<Channel>& channel) {
    CallContext context(absl::Seconds(60));
    context.set_wait_for_ready(true);
    const auto reply = EchoClient(channel).Say(context, SayRequest());
    return reply.ok() ? reply->payload() : reply.status().ToString();
  }
  // Calls until this one answers.
  static void ExpectAnswerBy(const std::shared_ptr<Channel>& channel, const std::string& who) {
    const absl::Time end = absl::Now() + absl::Seconds(30);
    std::string said;
    while (absl::Now() < end) {
      said = Say(channel);
      if (said == who + " 1") return;
    }
    ADD_FAILURE() << who << " did not answer, but " << said;
  }

  FakeNetwork network_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

TEST_F(ServersTest, ListIsBalanced) {
  StartServer("a:1");
  StartServer("b:1");
  ChannelOptions options;
  options.balancing = Balancing::kRoundRobin;
  auto channel = Connect("a:1,b:1", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ((*channel)->server(), "a:1,b:1");
  ExpectAnswerBy(*channel, "a:1");
  ExpectAnswerBy(*channel, "b:1");
}

TEST_F(ServersTest, OneThatIsUpIsEnoughToConnect) {
  StartServer("b:1");
  auto channel = Connect("a:1,b:1");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(Say(*channel), "b:1 1");
  EXPECT_FALSE(Connect("a:1,c:1").ok());
}

TEST_F(ServersTest, BadListsAreRefused) {
  for (const char* bad : {"a:1,", ",a:1", "a:1,b", "a:1;b:1", ""}) {
    EXPECT_EQ(Connect(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(ServersTest, ServersThatAreSetAreUsed) {
  StartServer("a:1");
  auto channel = Connect("a:1");
  ASSERT_TRUE(channel.ok()) << channel.status();
  StartServer("b:1");
  EXPECT_EQ((*channel)->SetServers({"b:1", "nonsense"}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Say(*channel), "a:1 1") << "nothing has changed";
  EXPECT_TRUE((*channel)->SetServers({"b:1"}).ok());
  EXPECT_EQ(Say(*channel), "b:1 1");
}

// Calls of several threads, while servers drain: none fails, since those that cross the news have not run.
TEST_F(ServersTest, CallsGoOnWhileServersDrain) {
  StartServer("a:1");
  StartServer("b:1");
  StartServer("c:1");
  ChannelOptions options;
  options.balancing = Balancing::kRoundRobin;
  options.retry.budget = 1000;
  auto channel = Connect("a:1,b:1,c:1", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  for (const char* who : {"a:1", "b:1", "c:1"}) ExpectAnswerBy(*channel, who);
  std::atomic<bool> over{false};
  std::atomic<int> failed{0};
  std::atomic<int> calls{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      while (!over) {
        const std::string said = Say(*channel);
        if (said.find(":1 ") == std::string::npos) {
          ++failed;
          ADD_FAILURE() << said;
        }
        ++calls;
      }
    });
  }
  const auto wait_for_calls = [&](int more) {
    for (const int until = calls + more; calls < until;) std::this_thread::yield();
  };
  wait_for_calls(100);
  EXPECT_TRUE(nodes_[0]->server->Drain(absl::Seconds(60)).ok());
  wait_for_calls(100);
  EXPECT_TRUE(nodes_[1]->server->Drain(absl::Seconds(60)).ok());
  wait_for_calls(100);
  over = true;
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(failed, 0);
}

class FileTest : public ServersTest {
 protected:
  FileTest() : path_(std::string(testing::TempDir()) + "/servers") {}
  // As programs should: the reader sees the old list or the new one.
  void Write(const std::string& text) {
    {
      std::ofstream file(path_ + ".new");
      file << text;
    }
    ASSERT_EQ(rename((path_ + ".new").c_str(), path_.c_str()), 0);
  }
  const std::string path_;
};

TEST_F(FileTest, IsWatched) {
  StartServer("a:1");
  StartServer("b:1");
  Write("# the shop\n\n  a:1  \n");
  auto channel = Connect("file:" + path_);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(Say(*channel), "a:1 1");
  Write("b:1\n");
  ExpectAnswerBy(*channel, "b:1");
  // Nonsense, and no file at all, change nothing; what follows is read.
  Write("what\n");
  remove(path_.c_str());
  Write("a:1\nb:1\n");
  ExpectAnswerBy(*channel, "a:1");
}

TEST_F(FileTest, ThatIsNotThereIsTold) {
  remove(path_.c_str());
  EXPECT_EQ(Connect("file:" + path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Connect("file:/no/such/folder/servers").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(FileTest, ThatIsAFolderIsAnErrorAndChangesNothing) {
  StartServer("a:1");
  StartServer("b:1");
  remove(path_.c_str());
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(Connect("file:" + path_).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  Write("a:1\n");
  auto channel = Connect("file:" + path_);
  ASSERT_TRUE(channel.ok()) << channel.status();
  // The folder is moved in place, so the resolver reads it.
  remove(path_.c_str());
  ASSERT_EQ(mkdir((path_ + ".folder").c_str(), 0700), 0);
  ASSERT_EQ(rename((path_ + ".folder").c_str(), path_.c_str()), 0);
  EXPECT_EQ(Say(*channel), "a:1 1");
  ASSERT_EQ(rmdir(path_.c_str()), 0);
  Write("b:1\n");
  ExpectAnswerBy(*channel, "b:1");
}

TEST_F(FileTest, ThatIsEmptyHasNoServersSoFar) {
  StartServer("a:1");
  Write("");
  auto channel = Connect("file:" + path_);
  ASSERT_TRUE(channel.ok()) << channel.status();
  CallContext context(absl::Seconds(60));
  EXPECT_EQ(EchoClient(*channel).Say(context, SayRequest()).status().code(),
            absl::StatusCode::kUnavailable);
  Write("a:1\n");
  ExpectAnswerBy(*channel, "a:1");
}

TEST_F(ServersTest, UsersOwnResolverIsHeardAndStopped) {
  class Directory final : public Resolver {
   public:
    absl::Status Start(Listener listener) override {
      listener_ = std::move(listener);
      return listener_({"a:1"});
    }
    void Stop() override { stopped = true; }
    absl::Status Say(const std::vector<std::string>& servers) { return listener_(servers); }
    bool stopped = false;

   private:
    Listener listener_;
  };
  StartServer("a:1");
  StartServer("b:1");
  auto directory = std::make_shared<Directory>();
  ChannelOptions options;
  options.resolver = directory;
  auto channel = Connect("", options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(Say(*channel), "a:1 1");
  EXPECT_FALSE(directory->Say({"nonsense"}).ok());
  EXPECT_TRUE(directory->Say({"b:1"}).ok());
  EXPECT_EQ(Say(*channel), "b:1 1");
  channel->reset();
  EXPECT_TRUE(directory->stopped);
}

}  // namespace servers_test
}  // namespace sluice
