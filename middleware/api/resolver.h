// SPDX-License-Identifier: Apache-2.0
//
// Resolver: where a channel learns which servers there are.
//
//   sluice::Channel::Connect("file:/etc/shop/servers")         // FileResolver
//   options.resolver = std::make_shared<MyDirectory>();        // a user's own
//
// Who owns it   The channel; the user may share it. One channel each.
// Which thread  The channel calls Start() and Stop(), one thread at a time. The listener may be called on any.
// What ends it  Stop(), when the channel goes.
#ifndef SLUICE_MIDDLEWARE_API_RESOLVER_H_
#define SLUICE_MIDDLEWARE_API_RESOLVER_H_

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

class Resolver {
 public:
  // All servers there are, "host:port" each, in the order in which pick-first wants them. A list that can't be
  // understood is answered with INVALID_ARGUMENT, and changes nothing.
  using Listener = std::function<absl::Status(const std::vector<std::string>& servers)>;

  virtual ~Resolver() = default;
  // Once. Calls the listener before it returns, and later when the list is another one. An error: there is none to
  // be had; then the listener is not called later either.
  virtual absl::Status Start(Listener listener) = 0;
  // No call of the listener runs, or comes, after it has returned.
  virtual void Stop() = 0;
};

// A file of addresses, one a line; empty lines and those that begin with # don't count. It is watched: a new file that is
// moved in its place, or one that was written and closed, is read at once. A file that is gone or makes no sense
// leaves the servers as they are.
class FileResolver final : public Resolver {
 public:
  explicit FileResolver(std::string path) : path_(std::move(path)) {}
  ~FileResolver() override { Stop(); }
  FileResolver(const FileResolver&) = delete;
  FileResolver& operator=(const FileResolver&) = delete;

  absl::Status Start(Listener listener) override;
  void Stop() override;

 private:
  absl::StatusOr<std::vector<std::string>> Read() const;
  void Watch();

  const std::string path_;
  Listener listener_;
  std::vector<std::string> servers_;
  int watch_fd_ = -1;  // inotify, of the file's folder
  int stop_fd_ = -1;
  std::thread thread_;
};

// The lines of such a file.
std::vector<std::string> ParseServers(const std::string& text);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RESOLVER_H_
