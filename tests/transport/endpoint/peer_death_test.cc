// SPDX-License-Identifier: Apache-2.0
//
// Processes that are killed under load. The binary starts itself again in the role that the
// environment names.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

extern char** environ;

namespace sluice::endpoint {
namespace {

// A child process in a role; what it prints comes through `out`.
class Child {
 public:
  Child(const std::string& role, uint16_t port) {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
    setenv("SLUICE_TEST_ROLE", role.c_str(), 1);
    setenv("SLUICE_TEST_PORT", std::to_string(port).c_str(), 1);
    char path[] = "/proc/self/exe";
    char* arguments[] = {path, nullptr};
    EXPECT_EQ(posix_spawn(&pid_, path, &actions, nullptr, arguments, environ), 0);
    unsetenv("SLUICE_TEST_ROLE");
    posix_spawn_file_actions_destroy(&actions);
    close(fds[1]);
    out_ = fdopen(fds[0], "r");
  }
  ~Child() {
    Kill();
    fclose(out_);
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  int ReadNumber() {
    int number = -1;
    EXPECT_EQ(fscanf(out_, "%d", &number), 1);
    return number;
  }

 private:
  pid_t pid_ = -1;
  FILE* out_ = nullptr;
};

int RunServer(uint16_t port) {
  Node server;
  const auto bound = server.endpoint->Listen("127.0.0.1", port);
  if (!bound.ok()) return 1;
  std::printf("%d\n", *bound);
  std::fflush(stdout);
  server.recorder.on_message = [&](PeerId peer, std::span<const std::byte> bytes) {
    auto buffer = server.endpoint->Reserve(peer, static_cast<uint32_t>(bytes.size()));
    if (!buffer.ok()) return;
    std::memcpy(buffer->data, bytes.data(), bytes.size());
    server.endpoint->Commit(peer, *buffer, static_cast<uint32_t>(bytes.size()), false);
    server.endpoint->Release(buffer->slot);
  };
  PollUntil({&server}, [] { return false; });
  return 0;
}

int RunClient(uint16_t port) {
  Node client;
  auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 10'000'000'000);
  if (!peer.ok()) return 1;
  PollUntil({&client}, [&] { return !client.recorder.ups.empty(); });
  const std::string text(200, 'c');
  for (;;) {
    while (client.Send(*peer, text).ok()) {
    }
    client.endpoint->Poll();
  }
}

TEST(EndpointPeerDeath, ServerHearsOfKilledClientsAndServesTheNext) {
  Node server;
  const auto port = server.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  size_t received = 0;
  server.recorder.on_message = [&](PeerId, std::span<const std::byte> bytes) {
    ASSERT_EQ(bytes.size(), 200u);
    for (const std::byte byte : bytes) ASSERT_EQ(byte, std::byte{'c'});
    ++received;
  };
  for (size_t round = 1; round <= 5; ++round) {
    Child client("client", *port);
    const size_t target = received + 1'000 * round;
    PollUntil({&server}, [&] { return received >= target; });
    client.Kill();
    PollUntil({&server}, [&] { return server.recorder.downs.size() == round; });
    const absl::Status& why = server.recorder.downs.back().why;
    EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable) << why;
    EXPECT_NE(why.message().find("(peer 127.0.0.1:"), absl::string_view::npos) << why;
  }
  EXPECT_EQ(server.recorder.ups.size(), 5u);
}

TEST(EndpointPeerDeath, ClientHearsOfAKilledServerAndConnectsToTheNext) {
  Options options;
  options.dead_peer_ns = 500'000'000;  // a busy machine lets a process wait for 100 ms
  Node client(options);
  uint16_t port = 0;
  size_t answers = 0;
  client.recorder.on_message = [&](PeerId, std::span<const std::byte>) { ++answers; };
  for (size_t round = 1; round <= 5; ++round) {
    Child server("server", port);  // the first picks the port, the next take it over
    port = static_cast<uint16_t>(server.ReadNumber());
    auto peer = client.endpoint->Connect("127.0.0.1", port, client.clock.NowNs() + 10'000'000'000);
    ASSERT_TRUE(peer.ok());
    const size_t target = answers + 1'000 * round;
    PollUntil({&client}, [&] {
      if (client.recorder.downs.size() == round) return true;
      if (client.recorder.ups.size() < round) return false;
      while (client.Send(*peer, "ping").ok()) {
      }
      return answers >= target;
    });
    ASSERT_EQ(client.recorder.downs.size(), round - 1) << client.recorder.downs.back().why;
    server.Kill();
    PollUntil({&client}, [&] {
      while (client.Send(*peer, "ping").ok()) {
      }
      return client.recorder.downs.size() == round;
    });
    EXPECT_EQ(client.recorder.downs.back().why.code(), absl::StatusCode::kUnavailable)
        << client.recorder.downs.back().why;
  }
}

}  // namespace
}  // namespace sluice::endpoint

int main(int argc, char** argv) {
  const char* role = getenv("SLUICE_TEST_ROLE");
  if (role != nullptr) {
    const auto port = static_cast<uint16_t>(std::atoi(getenv("SLUICE_TEST_PORT")));
    return std::string(role) == "server" ? sluice::endpoint::RunServer(port)
                                         : sluice::endpoint::RunClient(port);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
