// SPDX-License-Identifier: Apache-2.0
#include "transport/queue/completion_error.h"

#include <cstdio>

#include "transport/base/error.h"

namespace sluice::queue {
namespace {

struct Explanation {
  ibv_wc_status status;
  std::string_view name;
  std::string_view cause;
  std::string_view remedy;
};

constexpr std::string_view kOurs = "an error in this program";
constexpr std::string_view kReport = "report it, with this message";
constexpr std::string_view kNoAnswerOnRc =
    "the peer's process or host is gone, its queue pair has ended, the path is broken, or it is in "
    "another partition (option path.pkey)";

// Soft RoCE of Linux 6.1 (docs/devices.md).
constexpr std::string_view kNoRouteOnRc =
    "a soft RoCE device has no route to the peer, for example because its interface is down; on "
    "other devices an "
    "error in this program";

constexpr Explanation kExplanations[] = {
    {IBV_WC_SUCCESS, "IBV_WC_SUCCESS", "", ""},
    {IBV_WC_LOC_LEN_ERR, "IBV_WC_LOC_LEN_ERR", kOurs, kReport},
    {IBV_WC_LOC_QP_OP_ERR, "IBV_WC_LOC_QP_OP_ERR", kOurs, kReport},
    {IBV_WC_LOC_PROT_ERR, "IBV_WC_LOC_PROT_ERR", "the buffer is not registered, or no longer",
     kReport},
    {IBV_WC_WR_FLUSH_ERR, "IBV_WC_WR_FLUSH_ERR", "an earlier request failed",
     "see the error of that request"},
    {IBV_WC_REM_INV_REQ_ERR, "IBV_WC_REM_INV_REQ_ERR",
     "the message is longer than the peer's receive buffers, or than a packet while the two sides "
     "have different path MTUs",
     "send no more than the peer's max_message_bytes; give both sides the same path_mtu"},
    {IBV_WC_REM_ACCESS_ERR, "IBV_WC_REM_ACCESS_ERR",
     "the peer has revoked the key, most likely because it restarted", "connect again"},
    {IBV_WC_REM_OP_ERR, "IBV_WC_REM_OP_ERR", "the peer's device failed", "connect again"},
    {IBV_WC_RETRY_EXC_ERR, "IBV_WC_RETRY_EXC_ERR",
     "the peer's process or host is gone, its DC key has changed, the path is broken, or it is in "
     "another partition (option path.pkey)",
     "reconnect when the peer is running again"},
    {IBV_WC_RNR_RETRY_EXC_ERR, "IBV_WC_RNR_RETRY_EXC_ERR",
     "the peer had no receive buffer for too long: the peer hangs, or is overloaded",
     "check the peer's process, then reconnect"},
    {IBV_WC_FATAL_ERR, "IBV_WC_FATAL_ERR", "the local device failed", "restart on another device"},
    {IBV_WC_RESP_TIMEOUT_ERR, "IBV_WC_RESP_TIMEOUT_ERR", "the peer did not answer",
     "connect again"},
    {IBV_WC_GENERAL_ERR, "IBV_WC_GENERAL_ERR", "the local device failed",
     "restart on another device"},
};

}  // namespace

std::string_view StatusName(ibv_wc_status status) {
  for (const Explanation& explanation : kExplanations) {
    if (explanation.status == status) return explanation.name;
  }
  return "an unknown completion status";
}

absl::Status CompletionError(const ibv_wc& completion, const FailedRequest& request) {
  std::string_view cause = "see the device's manual";
  std::string_view remedy = "connect again";
  for (const Explanation& explanation : kExplanations) {
    if (explanation.status == completion.status) {
      cause = explanation.cause;
      remedy = explanation.remedy;
    }
  }
  if (request.rc && completion.status == IBV_WC_RETRY_EXC_ERR) cause = kNoAnswerOnRc;
  if (request.rc && completion.status == IBV_WC_LOC_QP_OP_ERR) {
    cause = kNoRouteOnRc;
    remedy = "bring the interface up, and connect again; otherwise report it, with this message";
  }
  char queue[64];
  if (request.rc) {
    std::snprintf(queue, sizeof(queue), "RC queue pair 0x%x", completion.qp_num);
  } else {
    std::snprintf(queue, sizeof(queue), "DCI 0x%x stream %u, DCTN 0x%x", completion.qp_num,
                  request.stream, request.dctn);
  }
  char what[192];
  std::snprintf(what, sizeof(what), "%.*s of %u bytes failed with %.*s (vendor error 0x%x; %s)",
                static_cast<int>(request.operation.size()), request.operation.data(),
                request.length_bytes, static_cast<int>(StatusName(completion.status).size()),
                StatusName(completion.status).data(), completion.vendor_err, queue);
  return base::Error(absl::StatusCode::kUnavailable, what,
                     {.layer = "queue",
                      .peer = request.peer,
                      .operation = request.operation,
                      .cause = cause,
                      .remedy = remedy,
                      .syndrome = static_cast<uint32_t>(completion.status),
                      .vendor_code = completion.vendor_err});
}

absl::Status PollError(std::string_view layer, std::string_view operation) {
  return base::Error(
      absl::StatusCode::kUnavailable, "a completion queue of the device can't be polled",
      {.layer = layer,
       .operation = operation,
       .cause = "the driver found a completion that it can't read, and may have dropped others",
       .remedy = "restart the program; if the error returns, update the driver and firmware"});
}

absl::Status StuckError(std::string_view peer, int64_t silent_ns, int64_t dead_peer_ns) {
  constexpr int64_t kMs = 1'000'000;
  return base::Error(
      absl::StatusCode::kUnavailable,
      "a send queue has completed nothing for " + std::to_string(silent_ns / kMs) + " ms",
      {.layer = "queue",
       .peer = peer,
       .operation = "send",
       .cause = "the peer does not answer, and the device retries for longer than configured; "
                "or the queue has failed without reporting an error",
       .remedy = "if this happens whenever a peer dies, raise dead_peer_timeout above " +
                 std::to_string(dead_peer_ns / kMs) + " ms"});
}

}  // namespace sluice::queue
