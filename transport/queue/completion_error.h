// SPDX-License-Identifier: Apache-2.0
//
// FailedRequest: a failed completion, decoded: the request, the stream, the peer, the likely cause, and what to do.
#ifndef SLUICE_TRANSPORT_QUEUE_COMPLETION_ERROR_H_
#define SLUICE_TRANSPORT_QUEUE_COMPLETION_ERROR_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transport/verbs/verbs_api.h"

namespace sluice::queue {

struct FailedRequest {
  std::string_view operation = "send";
  std::string_view peer;
  uint32_t dctn = 0;
  uint32_t stream = 0;
  uint32_t length_bytes = 0;
  bool rc = false;  // on an RC queue pair, without DCT and stream
};

// Returns "IBV_WC_RETRY_EXC_ERR", …
std::string_view StatusName(ibv_wc_status status);

absl::Status CompletionError(const ibv_wc& completion, const FailedRequest& request);

// Returns the error for a failed ibv_poll_cq(). The completions that it took from the queue are lost, so no user of the queue can continue.
absl::Status PollError(std::string_view layer, std::string_view operation);

// Returns the error for a send queue that has completed nothing for `silent_ns`. `peer` may be the cause. With a dead-peer timeout above
// `dead_peer_ns`, such a peer is detected in time.
absl::Status StuckError(std::string_view peer, int64_t silent_ns, int64_t dead_peer_ns);

}  // namespace sluice::queue

#endif  // SLUICE_TRANSPORT_QUEUE_COMPLETION_ERROR_H_
