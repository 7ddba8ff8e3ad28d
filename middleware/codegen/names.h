// SPDX-License-Identifier: Apache-2.0
//
// ClashOfNames: whether the C++ names that are generated for a file are different from each other, and from those that protoc
// generates for the messages and enums beside them.
#ifndef SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_
#define SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_

#include <string>

#include "google/protobuf/descriptor.h"

namespace sluice::codegen {

// Empty: they are different. Else the C++ name and the two things of the .proto files that would have it. Files that `file`
// imports count if they have the same package.
std::string ClashOfNames(const google::protobuf::FileDescriptor* file);

}  // namespace sluice::codegen

#endif  // SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_
