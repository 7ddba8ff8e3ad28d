// SPDX-License-Identifier: Apache-2.0
//
// Converts between metadata of gRPC and of Sluice.
//
// Purpose       Keys and values stay as they are, several values of a key included. Not passed on: "user-agent" and what gRPC
//               itself puts into headers ("grpc-…", "content-type", "te", "host", "connection"). The value of a key that ends in
//               "-bin" may have any bytes. A value of another key that is not printable ASCII, which gRPC cannot carry, goes to the gRPC side under
//               the key with "-bin" at its end.
// Threads       Any: functions of their arguments.
#ifndef SLUICE_TOOLS_GATEWAY_METADATA_CONVERSION_H_
#define SLUICE_TOOLS_GATEWAY_METADATA_CONVERSION_H_

#include <grpcpp/support/string_ref.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "middleware/api/metadata.h"

namespace sluice::gateway {

using GrpcMetadata = std::multimap<grpc::string_ref, grpc::string_ref>;

// Adds the entries that fit. Errors: that of Metadata::Add() for the first entry that does not fit.
absl::Status FromGrpc(const GrpcMetadata& entries, Metadata* metadata);

// Keys and values that gRPC accepts.
std::vector<std::pair<std::string, std::string>> ToGrpc(const Metadata& metadata);

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_METADATA_CONVERSION_H_
