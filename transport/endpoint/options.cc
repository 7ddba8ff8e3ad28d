// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "transport/base/error.h"
#include "transport/endpoint/create.h"
#include "transport/queue/dci_pool.h"

namespace sluice::endpoint {
namespace {

absl::Status InRange(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return base::Error(
      absl::StatusCode::kInvalidArgument,
      "option " + std::string(name) + " is " + std::to_string(value),
      {.layer = "endpoint",
       .operation = "create",
       .cause = "it must be from " + std::to_string(least) + " to " + std::to_string(most),
       .remedy = "choose a value in that range"});
}

}  // namespace

absl::Status Options::Validate() const {
  constexpr int64_t kMillisecond = 1'000'000;
  const struct {
    const char* name;
    int64_t value, least, most;
  } checks[] = {
      {"max_message_bytes", max_message_bytes, 64, 1 << 20},
      {"srq_size", srq_size, 16, 1 << 16},
      {"credits_per_peer", credits_per_peer, 2, srq_size},
      {"send_buffers", send_buffers, 64, 1 << 16},
      {"max_peers", max_peers, 1, 1 << 16},
      {"dci_count", dci_count, 1, queue::DciPool::kMaxDcis},
      {"dci_depth", dci_depth, 64, 1 << 14},
      {"dead_peer_ns", dead_peer_ns, kMillisecond, 600'000 * kMillisecond},
      {"accept_timeout_ns", accept_timeout_ns, kMillisecond, 600'000 * kMillisecond},
      {"max_half_open", max_half_open, 1, 1 << 16},
      {"failed_handshakes_per_second", failed_handshakes_per_second, 1, 1'000'000},
  };
  for (const auto& check : checks) {
    absl::Status status = InRange(check.name, check.value, check.least, check.most);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice::endpoint
