// SPDX-License-Identifier: Apache-2.0
//
// DetailOf(), IsRetrySafe(): read the details of an error of Sluice: layer, peer, likely cause,
// remedy, and whether a retry is safe.
//
//   const absl::StatusOr<SayReply> reply = client.Say(context, request);
//   if (sluice::IsRetrySafe(reply.status())) …             // it provably did not run at the server
//   if (const auto detail = sluice::DetailOf(reply.status()); detail.has_value()) {
//     Count(detail->layer(), detail->peer());
//   }
//
// Format        The payload is a serialised sluice.ErrorDetail. An installation has
//               proto/error_detail.proto for programs in other languages. A C++ program may compile
//               it as well.
// Threads       Any: values and pure functions.
#ifndef SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_
#define SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_

#include "transport/base/status_detail.h"

namespace sluice {

using base::DetailOf;
using base::IsRetrySafe;
using base::StatusDetail;

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_
