// SPDX-License-Identifier: Apache-2.0
//
// Other processes with DC programs of their own, to be killed. One test a binary, since a process
// that has threads (the firmware thread) must not fork under ThreadSanitizer.
#ifndef SLUICE_TESTS_TRANSPORT_SOFTDC_DC_CHILD_H_
#define SLUICE_TESTS_TRANSPORT_SOFTDC_DC_CHILD_H_

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"

namespace sluice::softdc {

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
inline void Receiver(int, int up) {
  DcNode node;
  const DcAddress address = node.Address();
  if (write(up, &address, sizeof(address)) < 0) return;
  for (;;) {
    node.PollReceive();
    node.PostReceives(1);
  }
}

// Sends to the address it is given, as fast as it can, for ever.
inline void Sender(int down, int) {
  DcAddress to;
  if (read(down, &to, sizeof(to)) != sizeof(to)) return;
  DcNode node;
  for (uint64_t i = 0;; ++i) {
    node.Send(to, std::to_string(i), i);
    node.PollSend();
  }
}

}  // namespace sluice::softdc

#endif  // SLUICE_TESTS_TRANSPORT_SOFTDC_DC_CHILD_H_
