// SPDX-License-Identifier: Apache-2.0
#include "transport/endpoint/reception.h"

#include "transport/base/error.h"

namespace sluice::endpoint {
namespace {

absl::Status Exhausted(const Reception& reception, const std::string& what, const char* remedy) {
  const std::string whose =
      reception.tenant.empty() ? "" : " of tenant \"" + reception.tenant + "\"";
  return base::Error(absl::StatusCode::kResourceExhausted, "all " + what + whose + " are taken",
                     {.layer = "endpoint",
                      .operation = "connect",
                      .cause = std::to_string(reception.peers) + " peers are connected",
                      .remedy = remedy,
                      .retry_safe = true});
}

}  // namespace

peer::TenantTargets Reception::TargetsOf(bool old) const {
  if (old) return renewal.old;
  return {.data_dctn = data->dctn(),
          .control_dctn = control->dctn(),
          .data_key = data->access_key(),
          .control_key = control->access_key()};
}

absl::Status Reception::CheckPlace() const {
  if (!full()) return absl::OkStatus();
  return Exhausted(*this, std::to_string(max_peers) + " places for peers", "raise max_peers");
}

absl::StatusOr<uint32_t> Reception::WindowForOne(uint32_t credits_per_peer) const {
  const uint32_t left = srq_size - promised;
  const uint32_t window =
      std::min({credits_per_peer, std::max(left / kShareOfRest, kLeastWindow), left});
  if (window >= std::min(kLeastWindow, credits_per_peer)) return window;
  return Exhausted(*this, std::to_string(srq_size) + " receive buffers",
                   tenant.empty()
                       ? "raise limits.receive_buffers, or lower limits.credits_per_peer"
                       : "raise the tenant's receive_buffers, or lower limits.credits_per_peer");
}

}  // namespace sluice::endpoint
