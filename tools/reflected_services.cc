// SPDX-License-Identifier: Apache-2.0
#include "tools/reflected_services.h"

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.pb.h"
#include "proto/reflection.sluice.h"
#include "transport/base/error.h"

namespace sluice::tools {

using reflection::v1::FilesOfRequest;
using reflection::v1::ListServicesRequest;
using reflection::v1::ReflectionClient;

absl::StatusOr<std::vector<std::string>> ReflectedServices::Names() const {
  CallContext context(timeout_);
  const auto reply = ReflectionClient(channel_).ListServices(context, ListServicesRequest());
  if (!reply.ok()) return reply.status();
  return std::vector<std::string>(reply->services().begin(), reply->services().end());
}

absl::StatusOr<const google::protobuf::ServiceDescriptor*> ReflectedServices::Service(
    const std::string& name) {
  if (const auto* known = pool_.FindServiceByName(name)) return known;
  CallContext context(timeout_);
  FilesOfRequest request;
  request.set_service(name);
  const auto reply = ReflectionClient(channel_).FilesOf(context, request);
  if (!reply.ok()) return reply.status();
  for (const std::string& bytes : reply->files()) {
    google::protobuf::FileDescriptorProto file;
    const bool good =
        file.ParseFromString(bytes) &&
        (pool_.FindFileByName(file.name()) != nullptr || pool_.BuildFile(file) != nullptr);
    if (!good) {
      return base::Error(absl::StatusCode::kInternal, "a description can't be used",
                         {.layer = "tools",
                          .peer = channel_->server(),
                          .operation = "describe",
                          .cause = absl::StrCat("the file \"", file.name(), "\" that describes ",
                                                name, " is not well-formed"),
                          .remedy = "look at the server"});
    }
  }
  const auto* service = pool_.FindServiceByName(name);
  if (service != nullptr) return service;
  return absl::InternalError(absl::StrCat("the server's description of ", name, " is without it"));
}

absl::StatusOr<const google::protobuf::MethodDescriptor*> ReflectedServices::Method(
    std::string path) {
  if (!path.empty() && path.front() == '/') path.erase(0, 1);
  const size_t slash = path.find('/');
  if (slash == std::string::npos) {
    return base::Error(absl::StatusCode::kInvalidArgument,
                       absl::StrCat("\"", path, "\" is not a method"),
                       {.layer = "tools",
                        .operation = "call",
                        .cause = "there is no / in it",
                        .remedy = "write package.Service/Method"});
  }
  const auto service = Service(path.substr(0, slash));
  if (!service.ok()) return service.status();
  const std::string name = path.substr(slash + 1);
  if (const auto* method = (*service)->FindMethodByName(name)) return method;
  std::string known;
  for (int i = 0; i < (*service)->method_count(); ++i) {
    absl::StrAppend(&known, i == 0 ? "" : ", ", (*service)->method(i)->name());
  }
  return base::Error(absl::StatusCode::kNotFound,
                     absl::StrCat((*service)->full_name(), " has no method ", name),
                     {.layer = "tools",
                      .peer = channel_->server(),
                      .operation = "call",
                      .cause = absl::StrCat("its methods are: ", known),
                      .remedy = "check the name"});
}

}  // namespace sluice::tools
