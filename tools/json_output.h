// SPDX-License-Identifier: Apache-2.0
//
// A protobuf message as JSON, to standard output or into a file.
#ifndef SLUICE_TOOLS_JSON_OUTPUT_H_
#define SLUICE_TOOLS_JSON_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace sluice::tools {

// Field names as in the .proto, fields with their default value included. `path` "-" is standard
// output.
absl::Status WriteJson(const google::protobuf::Message& message, const std::string& path);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_JSON_OUTPUT_H_
