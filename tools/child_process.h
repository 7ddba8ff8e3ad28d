// SPDX-License-Identifier: Apache-2.0
//
// ChildProcess: a program that runs beside this one, its standard output readable here line by line.
//
// Ownership     Its creator. The destructor kills a child that still runs, and waits for it; a child also gets
//               SIGTERM when the thread that started it ends first (man PR_SET_PDEATHSIG).
// Threads       One.
#ifndef SLUICE_TOOLS_CHILD_PROCESS_H_
#define SLUICE_TOOLS_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sluice::tools {

class ChildProcess {
 public:
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  // `arguments[0]` is the path of the program. Standard error and the environment are shared with
  // this process.
  static absl::StatusOr<std::unique_ptr<ChildProcess>> Start(std::vector<std::string> arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // The next line of its standard output, without the newline. OUT_OF_RANGE: there will be none any
  // more. DEADLINE_EXCEEDED: none came in time.
  absl::StatusOr<std::string> ReadLine(absl::Duration timeout);
  // Everything that it still writes, until it closes its output.
  absl::StatusOr<std::string> ReadAll(absl::Duration timeout);
  // SIGSTOP: returns when it stands still, or has ended.
  void Signal(int number);
  // Its exit code, or 128 + the signal that ended it. DEADLINE_EXCEEDED: it still runs.
  absl::StatusOr<int> Wait(absl::Duration timeout);

 private:
  ChildProcess(std::string name, pid_t pid, int pid_fd, int output_fd)
      : name_(std::move(name)), pid_(pid), pid_fd_(pid_fd), output_fd_(output_fd) {}
  // True: something was read; false: the end.
  absl::StatusOr<bool> Fill(absl::Time deadline);

  const std::string name_;
  const pid_t pid_;
  const int pid_fd_;
  const int output_fd_;
  bool ended_ = false;
  int exit_code_ = 0;
  std::string unread_;
};

// Reads lines until one says "listening on HOST:PORT"; returns HOST:PORT.
absl::StatusOr<std::string> ListeningAddress(ChildProcess& server, absl::Duration timeout);

// The file `name` in the folder of the program that runs.
std::string PathBesideThisProgram(const std::string& name);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_CHILD_PROCESS_H_
