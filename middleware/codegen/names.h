// SPDX-License-Identifier: Apache-2.0
//
// ClashOfNames(): finds C++ names that would be generated twice for a file, or that protoc generates for its messages and enums.
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
