// SPDX-License-Identifier: Apache-2.0
//
// ReflectionBridge: one call of gRPC's reflection protocol, answered out of the reflection service of a Sluice server.
//
// Purpose       At the beginning it asks the server for its services and their descriptors, adds those that the user gave, and then
//               answers each request out of them. So tools such as grpcurl list and call methods.
//               When the gateway drains, the call ends with UNAVAILABLE: a tool may keep it open without a question.
// Ownership     Itself: it is destroyed when gRPC has ended the call and the questions have ended.
// Threads       Threads of gRPC and the thread that drives the channel.
#ifndef SLUICE_TOOLS_GATEWAY_REFLECTION_BRIDGE_H_
#define SLUICE_TOOLS_GATEWAY_REFLECTION_BRIDGE_H_

#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/channel.h"
#include "middleware/api/task.h"
#include "tools/gateway/descriptor_catalog.h"
#include "tools/gateway/open_calls.h"

namespace sluice::gateway {

class ReflectionBridge final : public grpc::ServerGenericBidiReactor {
 public:
  static bool Serves(std::string_view method) {
    return method == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" ||
           method == "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  }

  // `descriptors` and `calls` outlive the call.
  ReflectionBridge(std::shared_ptr<Channel> channel,
                   const google::protobuf::FileDescriptorSet* descriptors, OpenCalls* calls);

 private:
  ~ReflectionBridge() override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override {
    End(grpc::Status::CANCELLED);
    (void)stop_.request_stop();
  }
  void OnDone() override { Release(); }

  // Asks the server for all of its services.
  Task<absl::Status> Load();
  void OnLoaded(const absl::Status& status);
  void Read();
  // The first status is that of the call.
  void End(const grpc::Status& status);
  void Release() {
    if (holds_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  std::shared_ptr<Channel> channel_;
  const google::protobuf::FileDescriptorSet* const descriptors_;
  OpenCalls* const calls_;
  std::atomic<int> holds_{1};  // gRPC's, until OnDone(), and that of Load()
  std::stop_source stop_;
  OpenCalls::Place place_;
  DescriptorCatalog catalog_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  std::mutex mutex_;       // gRPC operations start with it, and none after Finish()
  bool finished_ = false;  // mutex_
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_REFLECTION_BRIDGE_H_
