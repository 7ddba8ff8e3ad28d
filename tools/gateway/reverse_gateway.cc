// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/reverse_gateway.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/impl/codegen/proto_utils.h>  // messages of protobuf for the generic stub
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/health.pb.h"
#include "tools/gateway/grpc_health.pb.h"
#include "tools/gateway/grpc_reflection.pb.h"
#include "tools/gateway/status_conversion.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using google::protobuf::ServiceDescriptorProto;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr char kGrpcHealth[] = "grpc.health.v1.Health";

// The gateway has them itself, whatever the gRPC server (another gateway, for example) lists.
bool IsOwn(const std::string& service) {
  return service == kGrpcHealth || service == "sluice.health.v1.Health" ||
         service == "sluice.reflection.v1.Reflection" || service.rfind("grpc.reflection.", 0) == 0;
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& target, uint32_t max_message_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(max_message_bytes));
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

// A call of the gRPC server's reflection, one question after another.
class Questions {
 public:
  explicit Questions(
      grpc::TemplatedGenericStub<ServerReflectionRequest, ServerReflectionResponse>* stub) {
    constexpr std::chrono::seconds kTimeout(10);
    context_.set_deadline(std::chrono::system_clock::now() + kTimeout);
    call_ = stub->PrepareCall(
        &context_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue_);
    call_->StartCall(nullptr);
    (void)Next();
  }
  bool Ask(const ServerReflectionRequest& request, ServerReflectionResponse* response) {
    call_->Write(request, nullptr);
    if (!Next()) return false;
    call_->Read(response, nullptr);
    return Next();
  }
  grpc::Status Finish() {
    call_->WritesDone(nullptr);
    (void)Next();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    (void)Next();
    return status;
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<ServerReflectionRequest, ServerReflectionResponse>>
      call_;
};

}  // namespace

class ReverseGateway::Description final : public reflection::v1::ReflectionServiceBase {
 public:
  explicit Description(const FileDescriptorSet& files) {
    for (const FileDescriptorProto& file : files.file()) files_.emplace(file.name(), file);
  }
  void Add(const std::string& service, const FileDescriptorProto& file) {
    files_.emplace(file.name(), file);
    services_[service] = file.name();
  }

  absl::Status ListServices(ServerContext&, const reflection::v1::ListServicesRequest&,
                            reflection::v1::ListServicesResponse* reply) override {
    for (const auto& [service, file] : services_) reply->add_services(service);
    return absl::OkStatus();
  }
  absl::Status FilesOf(ServerContext&, const reflection::v1::FilesOfRequest& request,
                       reflection::v1::FilesOfResponse* reply) override {
    const auto found = services_.find(request.service());
    if (found == services_.end()) {
      return base::Error(
          absl::StatusCode::kNotFound, absl::StrCat("no service ", request.service()),
          {.layer = "gateway",
           .operation = "describe",
           .cause = "the gRPC server's reflection did not list it at the start, or it "
                    "is not in the descriptors",
           .remedy = "check the name: sluice_call list shows the services",
           .retry_safe = true});
    }
    std::set<std::string> seen;
    AddFile(found->second, seen, reply);
    return absl::OkStatus();
  }

 private:
  // Each file after those that it imports.
  void AddFile(const std::string& name, std::set<std::string>& seen,
               reflection::v1::FilesOfResponse* reply) const {
    const auto found = files_.find(name);
    if (found == files_.end() || !seen.insert(name).second) return;
    for (const std::string& imported : found->second.dependency()) AddFile(imported, seen, reply);
    reply->add_files(found->second.SerializeAsString());
  }

  std::map<std::string, FileDescriptorProto> files_;
  std::map<std::string, std::string> services_;  // and the files that have them
};

ReverseGateway::ReverseGateway(const Options& options)
    : options_(options), stub_(ChannelTo(options.grpc_server, options.max_message_bytes)) {}

ReverseGateway::~ReverseGateway() = default;

absl::StatusOr<FileDescriptorSet> ReverseGateway::AskServer() {
  grpc::TemplatedGenericStub<ServerReflectionRequest, ServerReflectionResponse> stub(
      ChannelTo(options_.grpc_server, options_.max_message_bytes));
  Questions questions(&stub);
  ServerReflectionRequest request;
  ServerReflectionResponse response;
  request.set_list_services("");
  FileDescriptorSet files;
  std::vector<std::string> names;
  bool answered = questions.Ask(request, &response);
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  std::set<std::string> seen;
  for (const std::string& name : names) {
    request.set_file_containing_symbol(name);
    if (!answered || !(answered = questions.Ask(request, &response))) break;
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      FileDescriptorProto file;
      if (file.ParseFromString(bytes) && seen.insert(file.name()).second) {
        *files.add_file() = std::move(file);
      }
    }
  }
  // Servers may send a file without those that it imports.
  for (int i = 0; answered && i < files.file_size(); ++i) {
    const std::vector<std::string> imports(files.file(i).dependency().begin(),
                                           files.file(i).dependency().end());
    for (const std::string& imported : imports) {
      if (!seen.insert(imported).second) continue;
      request.set_file_by_filename(imported);
      if (!(answered = questions.Ask(request, &response))) break;
      for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
        if (!files.add_file()->ParseFromString(bytes)) files.mutable_file()->RemoveLast();
      }
    }
  }
  const grpc::Status status = questions.Finish();
  if (answered && files.file_size() > 0) return files;
  const absl::Status why =
      status.ok() ? absl::NotFoundError("it describes no service") : FromGrpc(status);
  return base::Error(
      why.code(), absl::StrCat("no services of ", options_.grpc_server),
      {.layer = "gateway",
       .peer = options_.grpc_server,
       .operation = "start",
       .cause = absl::StrCat("its reflection: ", std::string(why.message())),
       .remedy = "start the server first; without reflection there, give the gateway "
                 "--descriptors"});
}

absl::Status ReverseGateway::AddServices(const FileDescriptorSet& files) {
  for (const FileDescriptorProto& file : files.file()) {
    for (const ServiceDescriptorProto& service : file.service()) {
      const std::string name = file.package().empty()
                                   ? service.name()
                                   : absl::StrCat(file.package(), ".", service.name());
      if (IsOwn(name)) continue;
      description_->Add(name, file);
      services_.emplace_back(&stub_, name, name, service);
    }
  }
  // Health has the same messages under both names.
  for (const auto* const health : {grpc::health::v1::HealthCheckRequest::descriptor()->file(),
                                   health::v1::HealthCheckRequest::descriptor()->file()}) {
    FileDescriptorProto file;
    health->CopyTo(&file);
    const std::string name = health->service(0)->full_name();
    description_->Add(name, file);
    services_.emplace_back(&stub_, name, kGrpcHealth, file.service(0));
  }
  for (ForwardedService& service : services_) {
    if (absl::Status status = server_->Register(&service); !status.ok()) return status;
  }
  return server_->Register(description_.get());
}

absl::StatusOr<std::unique_ptr<ReverseGateway>> ReverseGateway::Start(const Options& options) {
  std::unique_ptr<ReverseGateway> gateway(new ReverseGateway(options));
  absl::StatusOr<FileDescriptorSet> files = options.descriptors;
  if (options.descriptors.file_size() == 0) files = gateway->AskServer();
  if (!files.ok()) return files.status();
  auto server = Server::Create(options.server);
  if (!server.ok()) return server.status();
  gateway->server_ = *std::move(server);
  gateway->description_ = std::make_unique<Description>(*files);
  if (absl::Status status = gateway->AddServices(*files); !status.ok()) return status;
  auto port = gateway->server_->Listen(options.listen);
  if (!port.ok()) return port.status();
  gateway->port_ = *port;
  return gateway;
}

}  // namespace sluice::gateway
