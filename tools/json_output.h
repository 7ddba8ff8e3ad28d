// SPDX-License-Identifier: Apache-2.0
//
// A protobuf message as JSON, to standard output, into a file, or from a file.
#ifndef SLUICE_TOOLS_JSON_OUTPUT_H_
#define SLUICE_TOOLS_JSON_OUTPUT_H_

#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace sluice::tools {

// Field names as in the .proto, fields with their default value included. `path` "-" is standard
// output.
absl::Status WriteJson(const google::protobuf::Message& message, const std::string& path);

// Reads what WriteJson() wrote. Unknown fields are ignored: a later version may have written them. Errors: as open() reports
// them; INVALID_ARGUMENT if the file is not such a message.
absl::Status ReadJson(const std::string& path, google::protobuf::Message* message);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_JSON_OUTPUT_H_
