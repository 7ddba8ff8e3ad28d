// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/descriptor_catalog.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "grpcpp/support/status_code_enum.h"
#include "tools/gateway/grpc_health.pb.h"

namespace sluice::gateway {
namespace {

using google::protobuf::FileDescriptorProto;
using grpc::reflection::v1alpha::FileDescriptorResponse;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr char kGrpcHealth[] = "grpc.health.v1.Health";

FileDescriptorProto FileOf(const google::protobuf::Descriptor* type) {
  FileDescriptorProto file;
  type->file()->CopyTo(&file);
  return file;
}

}  // namespace

DescriptorCatalog::DescriptorCatalog() {
  AddService("grpc.reflection.v1alpha.ServerReflection");
  AddFile(FileOf(ServerReflectionRequest::descriptor()));
}

void DescriptorCatalog::AddFile(const FileDescriptorProto& file) {
  if (files_.insert(file.name()).second) database_.Add(file);
}

void DescriptorCatalog::AddHealth() {
  if (services_.count("sluice.health.v1.Health") == 0 || services_.count(kGrpcHealth) != 0) return;
  AddService(kGrpcHealth);
  AddFile(FileOf(grpc::health::v1::HealthCheckRequest::descriptor()));
}

void DescriptorCatalog::AddWithImports(const FileDescriptorProto& file, std::set<std::string>& seen,
                                       FileDescriptorResponse* response) {
  if (!seen.insert(file.name()).second) return;
  response->add_file_descriptor_proto(file.SerializeAsString());
  for (const std::string& name : file.dependency()) {
    FileDescriptorProto imported;
    if (database_.FindFileByName(name, &imported)) AddWithImports(imported, seen, response);
  }
}

ServerReflectionResponse DescriptorCatalog::Answer(const ServerReflectionRequest& request) {
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const auto fail = [&response](grpc::StatusCode code, const std::string& text) {
    response.mutable_error_response()->set_error_code(code);
    response.mutable_error_response()->set_error_message(text);
    return response;
  };
  FileDescriptorProto file;
  bool found = false;
  std::string what;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      return response;
    case ServerReflectionRequest::kAllExtensionNumbersOfType: {
      what = request.all_extension_numbers_of_type();
      std::vector<int> numbers;
      (void)database_.FindAllExtensionNumbers(what, &numbers);
      if (numbers.empty() && !database_.FindFileContainingSymbol(what, &file)) break;
      auto* const extensions = response.mutable_all_extension_numbers_response();
      extensions->set_base_type_name(what);
      for (const int number : numbers) extensions->add_extension_number(number);
      return response;
    }
    case ServerReflectionRequest::kFileByFilename:
      what = request.file_by_filename();
      found = database_.FindFileByName(what, &file);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      what = request.file_containing_symbol();
      found = database_.FindFileContainingSymbol(what, &file);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      what = request.file_containing_extension().containing_type();
      found = database_.FindFileContainingExtension(
          what, request.file_containing_extension().extension_number(), &file);
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      return fail(grpc::StatusCode::INVALID_ARGUMENT, "the request asks for nothing");
  }
  if (!found) {
    return fail(grpc::StatusCode::NOT_FOUND, absl::StrCat("the server has no ", what));
  }
  std::set<std::string> seen;
  AddWithImports(file, seen, response.mutable_file_descriptor_response());
  return response;
}

}  // namespace sluice::gateway
