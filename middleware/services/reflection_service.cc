// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/reflection_service.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

using google::protobuf::FileDescriptor;

void AddFile(const FileDescriptor* file, std::set<const FileDescriptor*>& seen,
             reflection::v1::FilesOfResponse* reply) {
  if (!seen.insert(file).second) return;
  for (int i = 0; i < file->dependency_count(); ++i) AddFile(file->dependency(i), seen, reply);
  google::protobuf::FileDescriptorProto proto;
  file->CopyTo(&proto);
  reply->add_files(proto.SerializeAsString());
}

}  // namespace

absl::Status ReflectionService::ListServices(ServerContext&,
                                             const reflection::v1::ListServicesRequest&,
                                             reflection::v1::ListServicesResponse* reply) {
  for (const std::string& name : server_->services()) reply->add_services(name);
  return absl::OkStatus();
}

absl::Status ReflectionService::FilesOf(ServerContext&,
                                        const reflection::v1::FilesOfRequest& request,
                                        reflection::v1::FilesOfResponse* reply) {
  const std::vector<std::string>& names = server_->services();
  const google::protobuf::ServiceDescriptor* service = nullptr;
  if (std::find(names.begin(), names.end(), request.service()) != names.end()) {
    service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(request.service());
  }
  if (service == nullptr) {
    return base::Error(
        absl::StatusCode::kNotFound, absl::StrCat("no service ", request.service()),
        {.layer = "reflection",
         .operation = "describe",
         .cause = absl::StrCat("the server's services are: ", absl::StrJoin(names, ", ")),
         .remedy = "check the name: it is package.Service",
         .retry_safe = true});
  }
  std::set<const FileDescriptor*> seen;
  AddFile(service->file(), seen, reply);
  return absl::OkStatus();
}

}  // namespace sluice
