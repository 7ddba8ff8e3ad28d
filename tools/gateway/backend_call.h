// SPDX-License-Identifier: Apache-2.0
//
// BackendCall: a call from a handler of Sluice to a gRPC server, with messages as bytes, for co_await.
//
//   BackendCall call(&stub, "/shop.v1.Shop/Order", context);
//   call.WriteLast(request);
//   const bool replied = co_await call.Read(&reply);
//   co_return co_await call.End(context);
//
// Purpose       Has the deadline and the metadata of the handler's call, and is cancelled with it.
// Ownership     The handler's coroutine. If it is destroyed before End(), the call is cancelled. What gRPC still uses lives until
//               gRPC has ended the call.
// Threads       The coroutine's home. At most one Read() and one Write() at a time.
#ifndef SLUICE_TOOLS_GATEWAY_BACKEND_CALL_H_
#define SLUICE_TOOLS_GATEWAY_BACKEND_CALL_H_

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>

#include <array>
#include <coroutine>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "middleware/api/metadata.h"
#include "middleware/api/raw_message.h"
#include "middleware/api/server_context.h"
#include "middleware/api/task.h"

namespace sluice::gateway {

class BackendCall {
 public:
  // Starts the call. `stub` and `context` outlive it.
  BackendCall(grpc::GenericStub* stub, const std::string& method, ServerContext& context);
  ~BackendCall();
  BackendCall(const BackendCall&) = delete;
  BackendCall& operator=(const BackendCall&) = delete;

  // Waits for the metadata at the beginning; nullptr: the call failed before.
  Task<const Metadata*> Opened();
  // False: there are no more messages; End() returns the reason.
  Task<bool> Read(RawMessage* message);
  // False: the call has ended.
  Task<bool> Write(const RawMessage& message);
  // Writes the only message, and does not wait: a server may reply before it reads. No Write() and no WritesDone() beside it.
  void WriteLast(const RawMessage& message);
  void WritesDone();
  void Cancel();
  // Waits for the end. Metadata of the server goes to the reply of `context`, as far as it fits. No other function afterwards.
  // gRPC ends a call only after its last message was read, so before it either Read() has returned false, or Cancel() was called.
  Task<absl::Status> End(ServerContext& context);

 private:
  enum Step { kOpened, kRead, kWritten, kEnded, kSteps };
  class State;
  class Awaiter;

  std::shared_ptr<State> state_;
  Metadata initial_;
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_BACKEND_CALL_H_
