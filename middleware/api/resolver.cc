// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/resolver.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "middleware/api/fork_count.h"
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

struct FileResolver::Watcher {
  explicit Watcher(const std::string& file) : path(file) {}
  ~Watcher();

  absl::StatusOr<std::vector<std::string>> Read() const;
  void Watch();

  const std::string path;
  const internal::Creator creator;
  Listener listener;
  std::vector<std::string> servers;
  int watch_fd = -1;  // inotify descriptor of the file's directory
  int stop_fd = -1;
  std::thread thread;
};

FileResolver::FileResolver(std::string path) : path_(std::move(path)) {}

FileResolver::~FileResolver() { Stop(); }

absl::StatusOr<std::vector<std::string>> FileResolver::Watcher::Read() const {
  std::ifstream file(path);
  std::string text;
  bool complete = file.is_open();
  if (complete) {
    try {  // a read error is an exception; a folder can be opened, but not read
      text.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    } catch (const std::exception&) {
      complete = false;
    }
  }
  if (!complete) {
    return base::Error(absl::StatusCode::kNotFound, absl::StrCat("servers not read from ", path),
                       {.layer = "api",
                        .operation = "resolve",
                        .cause = "the file can't be read, or is a folder",
                        .remedy = "write the addresses there, host:port, one a line",
                        .retry_safe = true});
  }
  return ParseServers(text);
}

absl::Status FileResolver::Start(Listener listener) {
  auto watcher = std::make_unique<Watcher>(path_);
  // Watch before reading, so that no change is missed. Watch the folder, because a file that is moved in place is a new file.
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  watcher->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  watcher->stop_fd = eventfd(0, EFD_CLOEXEC);
  if (watcher->watch_fd < 0 || watcher->stop_fd < 0 ||
      inotify_add_watch(watcher->watch_fd, folder.c_str(), IN_CLOSE_WRITE | IN_MOVED_TO) < 0) {
    return base::ErrnoError(errno, absl::StrCat(folder, " can't be watched"),
                            {.layer = "api",
                             .operation = "resolve",
                             .remedy = "check that the folder is there and may be read"});
  }
  auto servers = watcher->Read();
  absl::Status status = servers.status();
  if (status.ok()) status = listener(*servers);
  if (!status.ok()) return status;
  watcher->servers = *std::move(servers);
  watcher->listener = std::move(listener);
  watcher->thread = std::thread([watcher = watcher.get()] { watcher->Watch(); });
  watcher_ = std::move(watcher);
  return absl::OkStatus();
}

void FileResolver::Watcher::Watch() {
  pollfd fds[2] = {{watch_fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
  for (;;) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    if (fds[1].revents != 0) return;
    alignas(inotify_event) char events[4096];
    while (read(watch_fd, events, sizeof(events)) > 0) {
    }
    auto now = Read();
    if (!now.ok() || *now == servers) continue;
    if (listener(*now).ok()) servers = *std::move(now);
  }
}

FileResolver::Watcher::~Watcher() {
  if (thread.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(stop_fd, &one, sizeof(one));
    thread.join();
  }
  for (const int fd : {watch_fd, stop_fd}) {
    if (fd >= 0) close(fd);
  }
}

void FileResolver::Stop() {
  if (watcher_ != nullptr && watcher_->creator.InForkedChild()) {
    (void)watcher_.release();  // the parent's thread may have been at work in it
  }
  watcher_.reset();
}

}  // namespace sluice
