// SPDX-License-Identifier: Apache-2.0
//
// Two real processes, one of which is killed: what the other one sees.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {
namespace {

// A child process that runs `body(read_end, write_end)` until it is killed or done. Forked before
// this process has opened any device, so that the child starts clean.
struct Child {
  pid_t pid = -1;
  int to_child = -1;
  int from_child = -1;

  template <typename Body>
  explicit Child(Body body) {
    int down[2], up[2];
    EXPECT_EQ(pipe(down), 0);
    EXPECT_EQ(pipe(up), 0);
    pid = fork();
    if (pid == 0) {
      close(down[1]);
      close(up[0]);
      body(down[0], up[1]);
      _exit(0);
    }
    close(down[0]);
    close(up[1]);
    to_child = down[1];
    from_child = up[0];
  }
  ~Child() {
    Kill();
    close(to_child);
    close(from_child);
  }
  void Kill() {
    if (pid < 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  template <typename T>
  T Get() {
    T value{};
    EXPECT_EQ(read(from_child, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
    return value;
  }
  template <typename T>
  void Put(const T& value) {
    EXPECT_EQ(write(to_child, &value, sizeof(value)), static_cast<ssize_t>(sizeof(value)));
  }
};

// Receives for ever, reposting.
void Receiver(int, int up) {
  DcNode node;
  const DcAddress address = node.Address();
  if (write(up, &address, sizeof(address)) < 0) return;
  for (;;) {
    node.PollReceive();
    node.PostReceives(1);
  }
}

// Sends to the address it is given, as fast as it can, for ever.
void Sender(int down, int) {
  DcAddress to;
  if (read(down, &to, sizeof(to)) != sizeof(to)) return;
  DcNode node;
  for (uint64_t i = 0;; ++i) {
    node.Send(to, std::to_string(i), i);
    node.PollSend();
  }
}

TEST(ProcessDeath, KilledReceiverGivesRetryErrorsAndOthersAreReached) {
  Child child(&Receiver), other(&Receiver);
  const DcAddress dead = child.Get<DcAddress>(), alive = other.Get<DcAddress>();
  DcNode a;
  ASSERT_EQ(a.Send(dead, "x", 1, 1), 0);
  ASSERT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
  child.Kill();
  // A send may still find the dead one's queue; once its death is known, there is no response.
  ibv_wc wc{};
  for (uint64_t i = 0; i < 1'000'000 && wc.status == IBV_WC_SUCCESS; ++i) {
    ASSERT_EQ(a.Send(dead, "x", 2, 1), 0);
    wc = a.PollSend();
  }
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  ASSERT_EQ(a.Send(alive, "x", 3, 2), 0);
  EXPECT_EQ(a.PollSend().status, IBV_WC_SUCCESS);
}

TEST(ProcessDeath, KilledSendersCostTheReceiverNothing) {
  constexpr int kRounds = 20;
  Child survivor(&Sender);
  std::vector<std::unique_ptr<Child>> victims;
  for (int i = 0; i < kRounds; ++i) victims.push_back(std::make_unique<Child>(&Sender));
  DcNode b;
  survivor.Put(b.Address());
  for (auto& victim : victims) {
    victim->Put(b.Address());
    // Until messages of both have come, then kill in full flight.
    uint32_t sources[2] = {};
    while (sources[1] == 0) {
      const ibv_wc wc = b.PollReceive();
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      b.PostReceives(1);
      if (sources[0] == 0) sources[0] = wc.src_qp;
      if (wc.src_qp != sources[0]) sources[1] = wc.src_qp;
    }
    victim->Kill();
  }
  // All receive WQEs are still in circulation: the survivor alone fills every one of them many
  // times over.
  for (int i = 0; i < 64 * 100; ++i) {
    ASSERT_EQ(b.PollReceive().status, IBV_WC_SUCCESS);
    b.PostReceives(1);
  }
}

}  // namespace
}  // namespace sluice::softdc
