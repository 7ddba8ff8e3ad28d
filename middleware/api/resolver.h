// SPDX-License-Identifier: Apache-2.0
//
// Resolver: gives a channel its list of servers.
//
//   sluice::Channel::Connect("file:/etc/shop/servers")         // FileResolver
//   options.resolver = std::make_shared<MyDirectory>();        // a user's own
//
// Ownership     The channel and the user share it. Each resolver serves one channel.
// Threads       The channel calls Start() and Stop(), one thread at a time. Any thread may call the
//               listener.
// End           The channel calls Stop() when it ends.
#ifndef SLUICE_MIDDLEWARE_API_RESOLVER_H_
#define SLUICE_MIDDLEWARE_API_RESOLVER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

class Resolver {
 public:
  // Receives the complete list of servers, "host:port" each, in the order in which pick-first tries
  // them. INVALID_ARGUMENT: an address cannot be parsed; the channel keeps its servers.
  using Listener = std::function<absl::Status(const std::vector<std::string>& servers)>;

  virtual ~Resolver() = default;
  // Starts to watch the list. Called once. Calls the listener before it returns, and again when the
  // list has changed. If it returns an error, it must not call the listener later.
  virtual absl::Status Start(Listener listener) = 0;
  // Stops the resolver. After it returns, the listener is not running, and is not called again.
  virtual void Stop() = 0;
};

// Reads the servers from a file of addresses, one a line. Empty lines and lines that begin with #
// are ignored. The file is watched: when a new file is moved in its place, or the file is written
// and closed, it is read at once. If the file is missing, invalid,
// or a folder, or if reading it fails, the channel keeps its servers.
// In a child that was forked after Start(), Stop() and the destructor return at once, and nothing is watched.
class FileResolver final : public Resolver {
 public:
  explicit FileResolver(std::string path);
  ~FileResolver() override;
  FileResolver(const FileResolver&) = delete;
  FileResolver& operator=(const FileResolver&) = delete;

  absl::Status Start(Listener listener) override;
  void Stop() override;

 private:
  struct Watcher;

  const std::string path_;
  std::unique_ptr<Watcher> watcher_;  // from Start() to Stop()
};

// Returns the addresses in the text of such a file.
std::vector<std::string> ParseServers(const std::string& text);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RESOLVER_H_
