// SPDX-License-Identifier: Apache-2.0
//
// Reads secrets from a file that no other user can read.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <utility>

#include "transport/base/error.h"
#include "transport/peer/secrets.h"

namespace sluice::peer {
namespace {

// Far more than all secrets with comments need.
constexpr size_t kMaxFileBytes = 64 << 10;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

absl::Status Refused(absl::StatusCode code, const std::string& path, const std::string& cause,
                     const std::string& remedy) {
  return base::Error(
      code, "secret file " + path + " is not used",
      {.layer = "peer", .operation = "read secrets", .cause = cause, .remedy = remedy});
}

// Checks the open file, so that the file cannot be replaced between the check and the read.
absl::Status CheckRights(int fd, const std::string& path) {
  struct stat file;
  if (fstat(fd, &file) != 0) {
    return base::ErrnoError(errno, "looking at secret file " + path, {.layer = "peer"});
  }
  if (!S_ISREG(file.st_mode)) {
    return Refused(absl::StatusCode::kInvalidArgument, path, "it is not a regular file",
                   "name a file");
  }
  if (file.st_uid != geteuid() && file.st_uid != 0) {
    return Refused(absl::StatusCode::kPermissionDenied, path,
                   "it belongs to user " + std::to_string(file.st_uid) + ", this process runs as " +
                       std::to_string(geteuid()) + ": its owner could change it",
                   "chown it to the user that runs this process, or to root");
  }
  if ((file.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    const int mode = static_cast<int>(file.st_mode & 07777);
    const std::string octal = {static_cast<char>('0' + mode / 64 % 8),
                               static_cast<char>('0' + mode / 8 % 8),
                               static_cast<char>('0' + mode % 8)};
    return Refused(absl::StatusCode::kPermissionDenied, path,
                   "its mode is " + octal + ": others than its owner have rights on it",
                   "chmod 600 " + path);
  }
  if (file.st_size > static_cast<off_t>(kMaxFileBytes)) {
    return Refused(absl::StatusCode::kInvalidArgument, path,
                   "it has " + std::to_string(file.st_size) + " bytes", "name the right file");
  }
  return absl::OkStatus();
}

std::vector<std::string> Lines(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const size_t first = line.find_first_not_of(kBlanks);
    if (first == std::string_view::npos || line[first] == '#') continue;
    line = line.substr(first, line.find_last_not_of(kBlanks) + 1 - first);
    lines.emplace_back(line);
  }
  return lines;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadSecretFile(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) {
    return base::ErrnoError(errno, "opening secret file " + path,
                            {.layer = "peer",
                             .operation = "read secrets",
                             .cause = "it is not there, or this process may not read it",
                             .remedy = "check path, owner and mode (600)"});
  }
  absl::Status status = CheckRights(fd.get(), path);
  if (!status.ok()) return status;
  std::string text(kMaxFileBytes, '\0');
  size_t have = 0;
  for (;;) {
    const ssize_t got = read(fd.get(), text.data() + have, text.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      status = base::ErrnoError(errno, "reading secret file " + path, {.layer = "peer"});
    }
    if (got <= 0) break;
    have += static_cast<size_t>(got);
  }
  std::vector<std::string> lines = Lines(std::string_view(text).substr(0, have));
  Wipe(text.data(), text.size());
  if (!status.ok()) {
    WipeTexts(&lines);
    return status;
  }
  return lines;
}

namespace {

// Returns a text that changes if the bytes or rights of the file change. The time of the last change has a limited resolution, which
// SecretReader takes into account.
std::string VersionOf(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat file;
  if (fd.get() < 0 || fstat(fd.get(), &file) != 0) return "";
  std::string version;
  for (const int64_t part :
       {static_cast<int64_t>(file.st_dev), static_cast<int64_t>(file.st_ino),
        static_cast<int64_t>(file.st_size), static_cast<int64_t>(file.st_uid),
        static_cast<int64_t>(file.st_mode), static_cast<int64_t>(file.st_mtim.tv_sec),
        static_cast<int64_t>(file.st_mtim.tv_nsec), static_cast<int64_t>(file.st_ctim.tv_sec),
        static_cast<int64_t>(file.st_ctim.tv_nsec)}) {
    version += std::to_string(part) + ' ';
  }
  return version;
}

}  // namespace

SecretSource SecretsFromFile(const std::string& path) {
  const auto read = [path]() -> absl::StatusOr<std::vector<std::string>> {
    auto lines = ReadSecretFile(path);
    if (!lines.ok()) return lines.status();
    // Checked here too, because the error can name the file here.
    auto checked = Secrets::FromTexts(*lines);
    if (!checked.ok()) {
      WipeTexts(&*lines);
      return base::Prefix(checked.status(), "secret file " + path);
    }
    return lines;
  };
  return SecretSource(read, [path] { return VersionOf(path); });
}

}  // namespace sluice::peer
