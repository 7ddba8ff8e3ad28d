// SPDX-License-Identifier: Apache-2.0
//
// Runtime: the device, queues, receive buffers and two threads that several channels of a process share.
//
//   auto runtime = sluice::Runtime::Create();
//   if (!runtime.ok()) …
//   sluice::ChannelOptions options;
//   options.runtime = *runtime;
//   auto a = sluice::Channel::Connect("10.0.0.1:7471", options);
//   auto b = sluice::Channel::Connect("10.0.0.2:7471", options);
//
// Purpose       A process with many channels. A channel without a runtime opens a device, creates its own queues and starts two threads. A
//               channel of a runtime needs only its connections. In exchange, one thread at a time polls the channels of a
//               runtime. A callback delays all these channels, and no callback can wait for any of them. Channels that shall not
//               affect each other belong in different runtimes.
// Ownership     References are shared. Each channel of a runtime keeps the runtime. The runtime ends when the last reference is
//               destroyed and the last channel has ended; the order does not matter.
// Threads       Any thread may use the channels, several at a time. A calling thread polls for all channels while it waits. One
//               background thread polls when no thread waits, and one more thread runs operations that may block in the kernel.
//               With your own loop (RuntimeOptions::driving) one Poll() and one descriptor serve all channels. Until the first
//               Poll() the loop's thread is the one that called Create(): if another thread runs the loop, call Poll() there before
//               Connect().
// Errors        absl::Status with cause and remedy (docs/errors.md).
// Limits        RuntimeOptions::limits hold for all channels together: the connections of all channels share
//               receive_buffers. All channels prove the same secret.
// Connections   Channels to the same address with the same options share their connections (ChannelOptions::share_connections).
// Counters      Channel::endpoint_counters() and the transport part of Channel::Snapshot() count for the whole runtime.
// Processes     After fork() the child must not use the runtime or its channels; a new channel in it fails there with
//               FAILED_PRECONDITION.
#ifndef SLUICE_MIDDLEWARE_API_RUNTIME_H_
#define SLUICE_MIDDLEWARE_API_RUNTIME_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/level_log.h"
#include "middleware/api/options.h"

namespace sluice {
namespace base {
class Clock;
}
namespace call {
class ClientGroup;
}
namespace endpoint {
class Endpoint;
struct Counters;
}  // namespace endpoint
namespace verbs {
class CapabilityReport;
}

class ChannelEngines;
class Lease;
class Stack;

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  // Opens the device, creates the queues and starts the threads. Blocks for some milliseconds. Errors: those of
  // Channel::Connect() that are not about a server.
  static absl::StatusOr<std::shared_ptr<Runtime>> Create(const RuntimeOptions& options = {});
  // The same over `stack`.
  static absl::StatusOr<std::shared_ptr<Runtime>> CreateOn(std::unique_ptr<Stack> stack,
                                                           const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // For all channels, as the functions of Channel with these names (channel.h).
  bool Drive(absl::FunctionRef<bool()> until, absl::Duration timeout);
  int Poll();
  bool PrepareToSleep();
  int fd() const;
  void Wake();

  // The selected device and the reason.
  const std::string& device_choice() const;
  const verbs::CapabilityReport& capabilities() const;

 private:
  friend class Channel;

  Runtime(std::unique_ptr<Stack> stack, const RuntimeOptions& options);
  // Ends the runtime after its last reference was destroyed.
  static void Release(Runtime* runtime);
  // Returns OK if this process created the runtime, otherwise FAILED_PRECONDITION.
  absl::Status CheckProcess() const;

  const RuntimeOptions options_;
  const pid_t process_;
  const std::unique_ptr<Stack> stack_;
  LevelLog log_;
  std::unique_ptr<call::ClientGroup> group_;
  std::unique_ptr<ChannelEngines> engines_;
  std::unique_ptr<endpoint::Endpoint> endpoint_;
  std::unique_ptr<Lease> lease_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RUNTIME_H_
