// SPDX-License-Identifier: Apache-2.0
//
// One process is killed and started again in a loop while three others work at full rate: these lose,
// repeat and reorder nothing. The binary starts itself again in the role that the environment names.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "middleware/session/sessions.h"
#include "tests/transport/endpoint/endpoint_pair.h"

extern char** environ;

namespace sluice::session {
namespace {

using endpoint::PeerId;
using endpoint::PollUntil;

constexpr uint32_t kChildren = 4;
constexpr uint32_t kVictim = 0;
constexpr uint32_t kKills = 10;
constexpr uint32_t kPerLife = 300;  // echoes of the victim before it is killed
constexpr uint32_t kPerSurvivor = 20'000;
constexpr uint32_t kHello = UINT32_MAX;

struct Text {
  uint32_t child;
  uint32_t number;
};

struct End : User {
  explicit End(const endpoint::Options& options)
      : node(options, &softdc::Verbs(), nullptr, &sessions) {
    sessions.Attach(node.endpoint.get());
  }
  void OnWritable(PeerId) override {}
  void OnProtocolError(PeerId, std::string_view what, std::string_view why) override {
    ADD_FAILURE() << what << ": " << why;
  }
  void OnMessage(PeerId peer, const frame::Header&, std::span<const std::byte> bytes) override {
    Text text;
    std::memcpy(&text, bytes.data(), sizeof(text));
    OnText(peer, text);
  }
  virtual void OnText(PeerId peer, const Text& text) = 0;
  bool Send(PeerId peer, const Text& text) {
    auto buffer = sessions.Reserve(peer, sizeof(text));
    if (!buffer.ok()) return false;
    std::memcpy(buffer->data, &text, sizeof(text));
    frame::Header header;
    header.method_id = 1;
    header.payload_bytes = sizeof(text);
    sessions.Commit(peer, *buffer, header);
    return true;
  }

  Sessions sessions{this};
  endpoint::Node node;
};

endpoint::Options Small() {
  endpoint::Options options;
  options.max_message_bytes = 256;
  options.dead_peer_ns = 100'000'000;
  return options;
}

// Says who it is, then sends back whatever comes, which must be 0, 1, 2, …
struct Echo final : End {
  explicit Echo(uint32_t id) : End(Small()), child(id) {}
  void OnPeerUp(PeerId id, const endpoint::PeerInfo&) override {
    peer = id;
    Send(peer, {child, kHello});
  }
  void OnPeerDown(PeerId, const absl::Status&) override { std::_Exit(1); }
  void OnText(PeerId, const Text& text) override {
    if (text.child != child || text.number != received) std::_Exit(2);
    ++received;
  }
  void Answer() {
    while (answered != received && Send(peer, {child, answered})) ++answered;
  }

  const uint32_t child;
  PeerId peer;
  uint32_t received = 0;
  uint32_t answered = 0;
};

int RunEcho(uint32_t child, uint16_t port) {
  Echo echo(child);
  auto peer =
      echo.node.endpoint->Connect("127.0.0.1", port, echo.node.clock.NowNs() + 20'000'000'000);
  if (!peer.ok()) return 3;
  PollUntil({&echo.node}, [&] {
    echo.Answer();
    echo.node.endpoint->Flush();
    return false;
  });
  return 0;
}

struct Hub final : End {
  Hub() : End(Small()) {}
  void OnPeerUp(PeerId, const endpoint::PeerInfo&) override {}
  void OnPeerDown(PeerId id, const absl::Status& why) override {
    for (uint32_t child = 0; child < kChildren; ++child) {
      if (!(children[child].peer == id)) continue;
      EXPECT_EQ(child, kVictim) << why;
      children[child] = {};
    }
  }
  void OnText(PeerId peer, const Text& text) override {
    ASSERT_LT(text.child, kChildren);
    Child& child = children[text.child];
    if (text.number == kHello) {
      child = {.peer = peer};
      return;
    }
    EXPECT_EQ(text.number, child.echoed) << "child " << text.child;
    ++child.echoed;
  }
  void SendToAll() {
    for (uint32_t i = 0; i < kChildren; ++i) {
      Child& child = children[i];
      while (child.peer.generation != 0 && Send(child.peer, {i, child.sent})) ++child.sent;
    }
    node.endpoint->Flush();
  }

  struct Child {
    PeerId peer;
    uint32_t sent = 0;
    uint32_t echoed = 0;
  };
  std::array<Child, kChildren> children;
};

pid_t Spawn(uint32_t child, uint16_t port) {
  setenv("SLUICE_TEST_CHILD", std::to_string(child).c_str(), 1);
  setenv("SLUICE_TEST_PORT", std::to_string(port).c_str(), 1);
  char path[] = "/proc/self/exe";
  char* arguments[] = {path, nullptr};
  pid_t pid = -1;
  EXPECT_EQ(posix_spawn(&pid, path, nullptr, nullptr, arguments, environ), 0);
  return pid;
}

void Kill(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

TEST(Survivors, LoseRepeatAndReorderNothingWhileOneDiesAgainAndAgain) {
  Hub hub;
  const auto port = hub.node.endpoint->Listen("127.0.0.1", 0);
  ASSERT_TRUE(port.ok()) << port.status();
  std::array<pid_t, kChildren> pids;
  for (uint32_t i = 0; i < kChildren; ++i) pids[i] = Spawn(i, *port);
  const auto run_until = [&](const std::function<bool()>& done) {
    PollUntil({&hub.node}, [&] {
      hub.SendToAll();
      return done() || testing::Test::HasFailure();
    });
  };
  for (uint32_t kills = 0; kills < kKills && !HasFailure(); ++kills) {
    run_until([&] { return hub.children[kVictim].echoed >= kPerLife; });
    Kill(pids[kVictim]);
    run_until([&] { return hub.children[kVictim].peer.generation == 0; });
    pids[kVictim] = Spawn(kVictim, *port);
  }
  run_until([&] {
    bool done = true;
    for (uint32_t i = 1; i < kChildren; ++i) done &= hub.children[i].echoed >= kPerSurvivor;
    return done;
  });
  for (const pid_t pid : pids) Kill(pid);
}

}  // namespace
}  // namespace sluice::session

int main(int argc, char** argv) {
  if (const char* child = std::getenv("SLUICE_TEST_CHILD")) {
    return sluice::session::RunEcho(
        static_cast<uint32_t>(std::atoi(child)),
        static_cast<uint16_t>(std::atoi(std::getenv("SLUICE_TEST_PORT"))));
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
