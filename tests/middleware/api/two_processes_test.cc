// SPDX-License-Identifier: Apache-2.0
//
// Server and Channel in two processes over the software NIC: everything below the API is the real thing. The server is
// this program again, with "--serve <address>"; it writes its port, or its error, to standard output.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "examples/echo/echo.sluice.h"
#include "middleware/api/server.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using examples::echo::EchoClient;
using examples::echo::EchoServiceBase;
using examples::echo::SayReply;
using examples::echo::SayRequest;

class Echo final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

ServerOptions SoftServer() {
  ServerOptions options;
  options.device = "softdc0";
  return options;
}

ChannelOptions SoftChannel() {
  ChannelOptions options;
  options.device = "softdc0";
  options.backoff_min = absl::Milliseconds(5);
  options.backoff_max = absl::Milliseconds(50);
  return options;
}

int Serve(const std::string& address) {
  Echo echo;
  auto server = Server::Create(SoftServer());
  absl::StatusOr<uint16_t> port = absl::UnknownError("not tried");
  if (!server.ok()) {
    port = server.status();
  } else if (absl::Status status = (*server)->Register(&echo); !status.ok()) {
    port = status;
  } else {
    port = (*server)->Listen(address);
  }
  printf("%s\n", port.ok() ? std::to_string(*port).c_str() : port.status().ToString().c_str());
  fflush(stdout);
  if (!port.ok()) return 1;
  char end = 0;  // runs until the parent closes our standard input, or dies
  [[maybe_unused]] const ssize_t got = read(STDIN_FILENO, &end, 1);
  return (*server)->Shutdown(absl::Seconds(5)).ok() ? 0 : 1;
}

class ServerProcess {
 public:
  explicit ServerProcess(const std::string& address) {
    int in[2];
    int out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) abort();
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl("/proc/self/exe", "server", "--serve", address.c_str(), nullptr);
      _exit(127);
    }
    close(in[0]);
    close(out[1]);
    stdin_ = in[1];
    FILE* lines = fdopen(out[0], "r");
    char line[256] = "";
    said_ =
        fgets(line, sizeof(line), lines) == nullptr ? "" : std::string(line, strcspn(line, "\n"));
    fclose(lines);
  }
  ~ServerProcess() {
    if (pid_ > 0) End();
  }
  const std::string& said() const { return said_; }
  void Kill() {
    kill(pid_, SIGKILL);
    End();
  }
  int End() {
    close(stdin_);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  int stdin_ = -1;
  std::string said_;
};

absl::Status Say(Channel& channel, const std::string& text, CallContext context) {
  SayRequest request;
  SayReply reply;
  request.set_payload(text);
  const absl::Status status = channel.Call(EchoClient::SayMethod(), context, request, &reply);
  if (status.ok() && reply.payload() != text) return absl::DataLossError("another text came back");
  return status;
}

// 16333 is the last that is sent as it is.
TEST(TwoProcessesTest, SizesFromNothingToTheLimit) {
  ServerProcess server("127.0.0.1:0");
  auto channel = Channel::Connect("127.0.0.1:" + server.said(), SoftChannel());
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_NE((*channel)->device_choice().find("softdc0"), std::string::npos);
  for (size_t size : {0, 1, 63, 64, 65, 4000, 16333, 16334, 65536, 1000000, 64 << 20}) {
    const absl::Status status =
        Say(**channel, std::string(size, 'x'), CallContext(absl::Seconds(30)));
    EXPECT_TRUE(status.ok()) << size << ": " << status;
  }
  EXPECT_EQ(Say(**channel, std::string(128 << 20, 'x'), CallContext(absl::Seconds(30))).code(),
            absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(Say(**channel, std::to_string(i), CallContext(absl::Seconds(30))).ok());
  }
  EXPECT_EQ(server.End(), 0);
}

TEST(TwoProcessesTest, KilledServerFailsCallsAndIsFoundAgain) {
  auto first = std::make_unique<ServerProcess>("127.0.0.1:0");
  const std::string address = "127.0.0.1:" + first->said();
  auto channel = Channel::Connect(address, SoftChannel());
  ASSERT_TRUE(channel.ok()) << channel.status();
  ASSERT_TRUE(Say(**channel, "before", CallContext(absl::Seconds(30))).ok());
  first->Kill();
  const absl::Status gone = Say(**channel, "gone", CallContext(absl::Seconds(30)));
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable) << gone;
  EXPECT_TRUE(base::DetailOf(gone).has_value());

  ServerProcess second(address);
  EXPECT_EQ("127.0.0.1:" + second.said(), address) << "the port is free at once";
  CallContext patient(absl::Seconds(30));
  patient.set_wait_for_ready(true);
  const absl::Status back = Say(**channel, "back", patient);
  EXPECT_TRUE(back.ok()) << back;
}

TEST(TwoProcessesTest, KilledServerLeavesNothingInSharedMemoryFolder) {
  const auto names = [] {
    std::set<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      // Of ours: other programs of this host come and go.
      const std::string name = entry.path().filename().string();
      if (name.find("softdc") != name.npos || name.find("sluice") != name.npos) all.insert(name);
    }
    return all;
  };
  const std::set<std::string> before = names();
  ServerProcess server("127.0.0.1:0");
  auto channel = Channel::Connect("127.0.0.1:" + server.said(), SoftChannel());
  ASSERT_TRUE(channel.ok()) << channel.status();
  server.Kill();
  for (const std::string& name : names()) EXPECT_TRUE(before.contains(name)) << name;
}

TEST(TwoProcessesTest, PortInUse) {
  ServerProcess first("127.0.0.1:0");
  ServerProcess second("127.0.0.1:" + first.said());
  EXPECT_NE(second.said().find("ALREADY_EXISTS"), std::string::npos) << second.said();
}

TEST(TwoProcessesTest, RefusedPortAndWrongHostSayWhatToDo) {
  const absl::Status refused = Channel::Connect("127.0.0.1:9", SoftChannel()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable) << refused;
  const auto detail = base::DetailOf(refused);
  ASSERT_TRUE(detail.has_value()) << refused;
  EXPECT_FALSE(detail->cause().empty());
  EXPECT_FALSE(detail->remedy().empty());
  const absl::Status nowhere =
      Channel::Connect("no-such-host.invalid:7471", SoftChannel()).status();
  EXPECT_FALSE(nowhere.ok());
  EXPECT_NE(std::string(nowhere.message()).find("no-such-host.invalid"), std::string::npos)
      << nowhere;
  ASSERT_TRUE(base::DetailOf(nowhere).has_value()) << nowhere;
  EXPECT_FALSE(base::DetailOf(nowhere)->remedy().empty());
}

TEST(TwoProcessesTest, UnknownDeviceListsWhatThereIs) {
  ChannelOptions options;
  options.device = "mlx5_99";
  const absl::Status status = Channel::Connect("127.0.0.1:9", options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::string(status.message()).find("softdc0"), std::string::npos) << status;
}

}  // namespace
}  // namespace sluice

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[1], "--serve") == 0) return sluice::Serve(argv[2]);
  // A NIC of our own: no other test or program of this user is on it.
  setenv("SOFTDC_DOMAIN", ("two-processes-" + std::to_string(getpid())).c_str(), 1);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
