// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/reflection_bridge.h"

#include <string>
#include <utility>

#include "middleware/api/call_context.h"
#include "proto/reflection.sluice.h"
#include "tools/gateway/message_bytes.h"
#include "tools/gateway/method_table.h"
#include "tools/gateway/status_conversion.h"

namespace sluice::gateway {

using google::protobuf::FileDescriptorProto;

ReflectionBridge::ReflectionBridge(std::shared_ptr<Channel> channel,
                                   const google::protobuf::FileDescriptorSet* descriptors,
                                   OpenCalls* calls)
    : channel_(std::move(channel)), descriptors_(descriptors), calls_(calls) {
  if (!calls_->Admit(stop_, &place_)) {
    End(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "too many calls are open at the gateway: retry later"));
    return;
  }
  on_stop_.emplace(stop_.get_token(), [this] {
    End(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the gateway shuts down"));
  });
  holds_.fetch_add(1, std::memory_order_relaxed);
  Spawn(Load(), [this](absl::Status status) {
    OnLoaded(status);
    Release();
  });
  // Load() may have ended the call.
  calls_->EndWhenDraining(stop_);
}

ReflectionBridge::~ReflectionBridge() {
  on_stop_.reset();  // if it runs, waits for its end
  (void)stop_.request_stop();
  channel_.reset();  // before the gateway sees that the call has ended
  calls_->Leave(place_);
}

Task<absl::Status> ReflectionBridge::Load() {
  const reflection::v1::ReflectionClient client(channel_);
  CallContext context(MethodTable::kTimeout);
  context.set_stop_token(stop_.get_token());
  const reflection::v1::ListServicesRequest everything;
  const auto services = co_await client.CoListServices(context, everything);
  // A server without reflection: the descriptors that were given are all there is.
  if (!services.ok()) {
    const bool is_given = absl::IsUnimplemented(services.status()) && descriptors_->file_size() > 0;
    co_return is_given ? absl::OkStatus() : services.status();
  }
  for (const std::string& name : services->services()) {
    catalog_.AddService(name);
    reflection::v1::FilesOfRequest request;
    request.set_service(name);
    const auto files = co_await client.CoFilesOf(context, request);
    // A service of another language or build may be without descriptors.
    if (!files.ok() && !absl::IsNotFound(files.status())) co_return files.status();
    if (!files.ok()) continue;
    for (const std::string& bytes : files->files()) {
      FileDescriptorProto file;
      if (file.ParseFromString(bytes)) catalog_.AddFile(file);
    }
  }
  co_return absl::OkStatus();
}

void ReflectionBridge::OnLoaded(const absl::Status& status) {
  if (!status.ok()) return End(ToGrpc(status));
  for (const FileDescriptorProto& file : descriptors_->file()) {
    catalog_.AddFile(file);
    for (const auto& service : file.service()) {
      catalog_.AddService(file.package().empty() ? service.name()
                                                 : file.package() + "." + service.name());
    }
  }
  catalog_.AddHealth();
  Read();
}

void ReflectionBridge::OnReadDone(bool ok) {
  if (!ok) return End(grpc::Status::OK);
  grpc::reflection::v1alpha::ServerReflectionRequest request;
  if (!request.ParseFromString(BytesOf(incoming_))) {
    return End(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                            "the message is not a ServerReflectionRequest"));
  }
  outgoing_ = BufferOf(catalog_.Answer(request).SerializeAsString());
  const std::lock_guard lock(mutex_);
  if (!finished_) StartWrite(&outgoing_);
}

void ReflectionBridge::OnWriteDone(bool ok) {
  if (!ok) return End(grpc::Status::CANCELLED);
  Read();
}

void ReflectionBridge::Read() {
  const std::lock_guard lock(mutex_);
  if (!finished_) StartRead(&incoming_);
}

void ReflectionBridge::End(const grpc::Status& status) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(finished_, true)) Finish(status);
}

}  // namespace sluice::gateway
