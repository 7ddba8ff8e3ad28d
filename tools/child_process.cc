// SPDX-License-Identifier: Apache-2.0
#include "tools/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice::tools {
namespace {

constexpr int kExecFailed = 127;  // as shells have it

// 1: readable, 0: time is over.
int WaitReadable(int fd, absl::Time deadline) {
  for (;;) {
    const absl::Duration left = deadline - absl::Now();
    const int64_t left_ms = std::clamp<int64_t>(
        absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), 0, 24 * 3600 * 1000);
    pollfd entry{fd, POLLIN, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left_ms));
    if (ready > 0) return 1;
    if (ready == 0 && absl::Now() >= deadline) return 0;
  }
}

absl::Status Late(const std::string& name, const char* what) {
  return base::Error(absl::StatusCode::kDeadlineExceeded, absl::StrCat(name, " ", what),
                     {.layer = "tools",
                      .operation = "child process",
                      .cause = "it hangs, or the machine is busy",
                      .remedy = "look at what it writes to standard error"});
}

// In the child, between fork and exec: only what man signal-safety allows.
[[noreturn]] void Become(char* const* arguments, int output_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kExecFailed);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(output_fd, STDOUT_FILENO);
  execv(arguments[0], arguments);
  _exit(kExecFailed);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    std::vector<std::string> arguments) {
  const std::string name = arguments.at(0);
  if (access(name.c_str(), X_OK) != 0) {
    return base::ErrnoError(errno, absl::StrCat("running ", name),
                            {.layer = "tools", .operation = "start", .remedy = "build it first"});
  }
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return base::ErrnoError(errno, "pipe2", {.layer = "tools", .operation = "start"});
  }
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(pointers.data(), pipe_fds[1], parent);
  const int fork_errno = errno;
  close(pipe_fds[1]);
  // man pidfd_open. glibc 2.36 declares it without C linkage.
  const int pid_fd = pid < 0 ? -1 : static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  if (pid_fd < 0) {
    const int error_number = pid < 0 ? fork_errno : errno;
    if (pid > 0) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
    close(pipe_fds[0]);
    return base::ErrnoError(error_number, absl::StrCat("starting ", name),
                            {.layer = "tools", .operation = "start"});
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(name, pid, pid_fd, pipe_fds[0]));
}

ChildProcess::~ChildProcess() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(pid_fd_);
  close(output_fd_);
}

absl::StatusOr<bool> ChildProcess::Fill(absl::Time deadline) {
  if (WaitReadable(output_fd_, deadline) == 0) return Late(name_, "wrote nothing in time");
  char bytes[4096];
  const ssize_t count = read(output_fd_, bytes, sizeof(bytes));
  if (count < 0) return base::ErrnoError(errno, "read", {.layer = "tools", .peer = name_});
  unread_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

absl::StatusOr<std::string> ChildProcess::ReadLine(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos || unread_.size() > kMaxLineBytes) {
      std::string line = unread_.substr(0, std::min(end, unread_.size()));
      unread_.erase(0, end == std::string::npos ? unread_.size() : end + 1);
      return line;
    }
    auto more = Fill(deadline);
    if (!more.ok()) return more.status();
    if (!*more) {
      if (!unread_.empty()) return std::exchange(unread_, "");
      return base::Error(
          absl::StatusCode::kOutOfRange, absl::StrCat(name_, " writes no more"),
          {.layer = "tools",
           .operation = "read",
           .cause = "it has ended, or is about to",
           .remedy = "look at its exit code and at what it wrote to standard error"});
    }
  }
}

absl::StatusOr<std::string> ChildProcess::ReadAll(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    auto more = Fill(deadline);
    if (!more.ok()) return more.status();
    if (!*more) return std::exchange(unread_, "");
  }
}

void ChildProcess::Signal(int number) {
  if (ended_) return;
  kill(pid_, number);
  siginfo_t info;
  if (number == SIGSTOP) waitid(P_PID, pid_, &info, WSTOPPED | WEXITED | WNOWAIT);
}

absl::StatusOr<int> ChildProcess::Wait(absl::Duration timeout) {
  if (ended_) return exit_code_;
  if (WaitReadable(pid_fd_, absl::Now() + timeout) == 0) return Late(name_, "did not end in time");
  int status = 0;
  if (waitpid(pid_, &status, 0) != pid_) {
    return base::ErrnoError(errno, "waitpid", {.layer = "tools", .peer = name_});
  }
  ended_ = true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return exit_code_;
}

absl::StatusOr<std::string> ListeningAddress(ChildProcess& server, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  for (;;) {
    auto line = server.ReadLine(deadline - absl::Now());
    if (!line.ok()) return base::Prefix(line.status(), "waiting for the server's address");
    constexpr char kBefore[] = "listening on ";
    if (line->rfind(kBefore, 0) == 0) return line->substr(sizeof(kBefore) - 1);
  }
}

std::string PathBesideThisProgram(const std::string& name) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  std::string own(path, length > 0 ? static_cast<size_t>(length) : 0);
  const size_t slash = own.rfind('/');
  return slash == std::string::npos ? name : own.substr(0, slash + 1) + name;
}

}  // namespace sluice::tools
