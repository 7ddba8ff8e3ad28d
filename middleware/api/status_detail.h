// SPDX-License-Identifier: Apache-2.0
//
// What an error of Sluice says to programs: which layer saw it, with which peer, why most likely, and whether the operation may
// be repeated.
//
//   const absl::StatusOr<SayReply> reply = client.Say(context, request);
//   if (sluice::IsRetrySafe(reply.status())) …             // it provably did not run at the server
//   if (const auto detail = sluice::DetailOf(reply.status()); detail.has_value()) {
//     Count(detail->layer(), detail->peer());
//   }
//
// The payload is a serialised sluice.ErrorDetail; proto/error_detail.proto is installed for programs in other languages, and a
// program may compile it as well.
//
// Thread-safety: values and pure functions.
#ifndef SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_
#define SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_

#include "transport/base/status_detail.h"

namespace sluice {

using base::DetailOf;
using base::IsRetrySafe;
using base::StatusDetail;

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STATUS_DETAIL_H_
