// SPDX-License-Identifier: Apache-2.0
//
// ClashOfNames(): finds C++ names that would be generated twice for a file, or that protoc generates for its messages and enums.
#ifndef SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_
#define SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_

#include <string>

#include "google/protobuf/descriptor.h"

namespace sluice::codegen {

// Returns an empty string if all names differ. Otherwise returns an error text with the C++ name and the two definitions in the .proto
// files that would have it. Imported files are checked too if they have the same package.
std::string ClashOfNames(const google::protobuf::FileDescriptor* file);

}  // namespace sluice::codegen

#endif  // SLUICE_MIDDLEWARE_CODEGEN_NAMES_H_
