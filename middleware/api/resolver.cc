// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/resolver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "transport/base/error.h"

namespace sluice {

std::vector<std::string> ParseServers(const std::string& text) {
  std::vector<std::string> servers;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty() && line.front() != '#') servers.emplace_back(line);
  }
  return servers;
}

absl::StatusOr<std::vector<std::string>> FileResolver::Read() const {
  std::ifstream file(path_);
  if (!file.is_open()) {
    return base::Error(absl::StatusCode::kNotFound, absl::StrCat("servers not read from ", path_),
                       {.layer = "api",
                        .operation = "resolve",
                        .cause = "the file can't be read",
                        .remedy = "write the addresses there, host:port, one a line",
                        .retry_safe = true});
  }
  return ParseServers(
      std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()));
}

absl::Status FileResolver::Start(Listener listener) {
  // Watch before reading, so that no change is missed. Watch the folder, because a file that is moved in place is a new file.
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  watch_fd_ = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  if (watch_fd_ < 0 || stop_fd_ < 0 ||
      inotify_add_watch(watch_fd_, folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) {
    const int error = errno;
    Stop();
    return base::ErrnoError(error, absl::StrCat(folder, " can't be watched"),
                            {.layer = "api",
                             .operation = "resolve",
                             .remedy = "check that the folder is there and may be read"});
  }
  auto servers = Read();
  absl::Status status = servers.status();
  if (status.ok()) status = listener(*servers);
  if (!status.ok()) {
    Stop();
    return status;
  }
  servers_ = *std::move(servers);
  listener_ = std::move(listener);
  thread_ = std::make_unique<std::thread>([this] { Watch(); });
  return absl::OkStatus();
}

void FileResolver::Watch() {
  pollfd fds[2] = {{watch_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    alignas(inotify_event) char events[4096];
    while (read(watch_fd_, events, sizeof(events)) > 0) {
    }
    auto servers = Read();
    if (!servers.ok() || *servers == servers_) continue;
    if (listener_(*servers).ok()) servers_ = *std::move(servers);
  }
}

void FileResolver::Stop() {
  if (thread_ != nullptr && creator_.InForkedChild()) {
    (void)thread_.release();  // the parent's; the descriptors below are copies
  } else if (thread_ != nullptr) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_fd_, &one, sizeof(one));
    thread_->join();
    thread_.reset();
  }
  for (int* fd : {&watch_fd_, &stop_fd_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

}  // namespace sluice
