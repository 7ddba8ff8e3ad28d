// SPDX-License-Identifier: Apache-2.0
//
// ToGrpc(), FromGrpc(): convert between absl::Status and grpc::Status. Codes and text are the same on both sides. A payload of an
// absl::Status is an entry of `details` in google.rpc.Status (header "grpc-status-details-bin"), and the other way around. absl::Status has
// one payload of a type URL: a second detail of that type has the URL with "#2" at its end, and so on; ToGrpc() takes it off.
//
// Threads       Any: pure functions.
// Limits        A gRPC client refuses more than 8 KiB of trailers unless it is told otherwise. ToGrpc() shortens a status to
//               kMaxStatusBytes of trailers; the end of the text then says what was omitted.
#ifndef SLUICE_TOOLS_GATEWAY_STATUS_CONVERSION_H_
#define SLUICE_TOOLS_GATEWAY_STATUS_CONVERSION_H_

#include <grpcpp/support/status.h>

#include <cstddef>

#include "absl/status/status.h"

namespace sluice::gateway {

inline constexpr size_t kMaxStatusBytes = 6144;

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_STATUS_CONVERSION_H_
