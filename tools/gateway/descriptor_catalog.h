// SPDX-License-Identifier: Apache-2.0
//
// DescriptorCatalog: services and descriptors of a server, as gRPC's reflection protocol asks for them.
//
// Ownership     Its creator.
// Threads       One at a time.
#ifndef SLUICE_TOOLS_GATEWAY_DESCRIPTOR_CATALOG_H_
#define SLUICE_TOOLS_GATEWAY_DESCRIPTOR_CATALOG_H_

#include <set>
#include <string>

#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "tools/gateway/grpc_reflection.pb.h"

namespace sluice::gateway {

class DescriptorCatalog {
 public:
  // Begins with gRPC's own reflection service.
  DescriptorCatalog();

  void AddService(const std::string& name) { services_.insert(name); }
  void AddFile(const google::protobuf::FileDescriptorProto& file);
  // Adds gRPC's name of the health service, if the server has Sluice's and not gRPC's.
  void AddHealth();

  grpc::reflection::v1alpha::ServerReflectionResponse Answer(
      const grpc::reflection::v1alpha::ServerReflectionRequest& request);

 private:
  // Adds the file and those that it imports.
  void AddWithImports(const google::protobuf::FileDescriptorProto& file,
                      std::set<std::string>& seen,
                      grpc::reflection::v1alpha::FileDescriptorResponse* response);

  std::set<std::string> services_;
  std::set<std::string> files_;
  google::protobuf::SimpleDescriptorDatabase database_;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_DESCRIPTOR_CATALOG_H_
