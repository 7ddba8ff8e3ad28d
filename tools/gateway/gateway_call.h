// SPDX-License-Identifier: Apache-2.0
//
// GatewayCall: one call from a gRPC client, passed on to a Sluice server.
//
// Purpose       Finds out which kind of call it is, starts it at the channel with the client's deadline and metadata, and passes
//               messages on as bytes, one at a time in each direction: a side that does not read slows the other side down.
//               Metadata at the beginning and at the end, and the status with its details, go to the client.
// Cancellation  A client that cancels, disconnects or dies stops the call at the Sluice server. gRPC tells apart the end of the
//               client's messages and the end of the client, so a handler does not take half a stream for the whole.
// Ownership     Itself: it is destroyed when gRPC and the channel have both ended it.
// Threads       Threads of gRPC and the thread that drives the channel. gRPC operations of the call start under mutex_, and none
//               after Finish().
#ifndef SLUICE_TOOLS_GATEWAY_GATEWAY_CALL_H_
#define SLUICE_TOOLS_GATEWAY_GATEWAY_CALL_H_

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <optional>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "middleware/api/call_context.h"
#include "middleware/api/channel.h"
#include "middleware/api/raw_message.h"
#include "tools/gateway/method_table.h"
#include "tools/gateway/open_calls.h"

namespace sluice::gateway {

class GatewayCall final : public grpc::ServerGenericBidiReactor {
 public:
  // What all calls of a gateway use. It outlives them.
  struct Shared {
    Channel* channel;
    MethodTable* methods;
    OpenCalls* calls;
    size_t max_message_bytes;
  };

  GatewayCall(grpc::GenericCallbackServerContext* context, const Shared* shared);

 private:
  ~GatewayCall() override;

  // gRPC's side.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnSendInitialMetadataDone(bool ok) override;
  void OnCancel() override { (void)stop_.request_stop(); }
  void OnDone() override { Release(); }
  void ReadRequest();

  // The server's side. Each step holds the call until it has ended.
  void OnMethod(absl::StatusOr<const Method*> method);
  absl::Status MakeContext();
  void StartUnary();
  // `request`: nullptr if the client streams. False: the call has ended.
  bool OpenStream(const RawMessage* request);
  void BeginReplies();
  void ReadReply();
  void OnReply(bool ok);
  void AwaitEnd();
  void End(const absl::Status& status);

  void Hold() { holds_.fetch_add(1, std::memory_order_relaxed); }
  void Release() {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void Fail(const absl::Status& why);
  absl::Status Attached(size_t bytes) const;
  absl::Status TooLong(const char* what, size_t bytes) const;

  grpc::GenericCallbackServerContext* const grpc_;
  const Shared* const shared_;
  const Method* method_ = nullptr;  // set before the first read
  std::atomic<int> holds_{1};       // gRPC's, until OnDone(), and one for each step of the channel
  std::stop_source stop_;
  OpenCalls::Place place_;
  std::optional<CallContext> context_;
  RawMessage request_;
  RawMessage reply_;
  Metadata initial_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::mutex mutex_;
  absl::Status fault_;               // mutex_; of a message, found here: the call ends with it
  bool finished_ = false;            // mutex_
  std::optional<RawStream> stream_;  // uses context_, request_ and reply_
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_GATEWAY_CALL_H_
