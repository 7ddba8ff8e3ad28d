// SPDX-License-Identifier: Apache-2.0
//
// Generator: protoc plugin that generates foo.sluice.h and foo.sluice.cc from foo.proto.
//
// For each service Echo of the file, in the namespace of its package:
//
//   class EchoServiceBase   derive from it, override its methods, Register() it at a Server
//   class EchoClient        methods to call over a Channel
//
// Methods have the names of the .proto. The generator refuses a file for which it would generate a C++ name twice (names.h).
#ifndef SLUICE_MIDDLEWARE_CODEGEN_GENERATOR_H_
#define SLUICE_MIDDLEWARE_CODEGEN_GENERATOR_H_

#include <cstdint>
#include <string>

#include "google/protobuf/compiler/code_generator.h"
#include "google/protobuf/descriptor.h"

namespace sluice::codegen {

class Generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  uint64_t GetSupportedFeatures() const override { return FEATURE_PROTO3_OPTIONAL; }
  // Generates both files. Not supported: parameters; `parameter` must be empty.
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                google::protobuf::compiler::GeneratorContext* context,
                std::string* error) const override;
};

}  // namespace sluice::codegen

#endif  // SLUICE_MIDDLEWARE_CODEGEN_GENERATOR_H_
