// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <set>
#include <string>

#include "transport/base/error.h"
#include "transport/endpoint/create.h"
#include "transport/lane/layout.h"
#include "transport/peer/terms.h"
#include "transport/queue/dci_pool.h"
#include "transport/queue/rc_queues.h"

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

absl::Status BadTenants(const std::string& what, const std::string& cause,
                        const std::string& remedy) {
  return base::Error(
      absl::StatusCode::kInvalidArgument, what,
      {.layer = "endpoint", .operation = "create", .cause = cause, .remedy = remedy});
}

absl::Status CheckTenants(const Options& options) {
  if (options.tenants.empty()) return absl::OkStatus();
  if (options.tenants.size() > Options::kMaxTenants) {
    return BadTenants("there are " + std::to_string(options.tenants.size()) + " tenants",
                      "each has queues of its own",
                      "at most " + std::to_string(Options::kMaxTenants));
  }
  if (options.secrets) {
    return BadTenants("secrets are set beside tenants",
                      "peers that prove them would belong to no tenant",
                      "give each tenant its own secrets, and leave the common secrets empty");
  }
  std::set<std::string> names;
  for (const Tenant& tenant : options.tenants) {
    if (tenant.name.empty() || tenant.name.size() > 64 || !names.insert(tenant.name).second) {
      return BadTenants("a tenant is called \"" + tenant.name.substr(0, 64) + "\"",
                        "names have 1 to 64 bytes, and no two tenants the same", "rename it");
    }
    if (!tenant.secrets) {
      return BadTenants("tenant \"" + tenant.name + "\" has no secrets",
                        "the secrets identify the peers of a tenant", "give it some");
    }
    absl::Status status = InRange("srq_size of a tenant", tenant.srq_size, 16, 1 << 16);
    if (status.ok()) status = InRange("max_peers of a tenant", tenant.max_peers, 1, 1 << 16);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Options::Validate() const {
  constexpr int64_t kMillisecond = 1'000'000;
  const struct {
    const char* name;
    int64_t value, least, most;
  } checks[] = {
      {"max_message_bytes", max_message_bytes, peer::kMinMessageBytes, 1 << 20},
      {"srq_size", srq_size, 16, 1 << 16},
      {"credits_per_peer", credits_per_peer, 2, srq_size},
      {"send_buffers", send_buffers, 64, 1 << 16},
      {"max_peers", max_peers, 1, 1 << 16},
      {"max_rc_queue_pairs", max_rc_queue_pairs, 0, queue::RcQueues::kMostQueues},
      {"dci_count", dci_count, 1, queue::DciPool::kMaxDcis},
      {"dci_depth", dci_depth, 64, 1 << 14},
      {"dead_peer_ns", dead_peer_ns, kMillisecond, 600'000 * kMillisecond},
      {"keepalive_ns", keepalive_ns, 0, 3'600'000 * kMillisecond},
      {"accept_timeout_ns", accept_timeout_ns, kMillisecond, 600'000 * kMillisecond},
      {"lane_memory_bytes", lane_memory_bytes, 0, 1 << 30},
      {"lane_slots", lane_slots, lane::kMinSlots, lane::kMaxSlots},
      {"lane_slot_bytes", lane_slot_bytes, lane::kMinSlotBytes, lane::kMaxSlotBytes},
      {"lane_after_messages", lane_after_messages, 1, 1 << 15},
      {"max_large_bytes", static_cast<int64_t>(max_large_bytes), 0, peer::kMaxLargeBytes},
      {"large_memory_bytes", static_cast<int64_t>(large_memory_bytes),
       static_cast<int64_t>(max_large_bytes), int64_t{1} << 40},
      {"max_half_open", max_half_open, 1, 1 << 16},
      {"failed_handshakes_per_second", failed_handshakes_per_second, 1, 1'000'000},
      {"path_mtu_bytes", path_mtu_bytes, 256, 4096},
  };
  for (const auto& check : checks) {
    absl::Status status = InRange(check.name, check.value, check.least, check.most);
    if (!status.ok()) return status;
  }
  if (!lane::IsSlotSize(lane_slot_bytes)) {
    return base::Error(absl::StatusCode::kInvalidArgument,
                       "option lane_slot_bytes is " + std::to_string(lane_slot_bytes),
                       {.layer = "endpoint",
                        .operation = "create",
                        .cause = "the size of a lane slot must be a multiple of 128 bytes",
                        .remedy = "choose a multiple of 128"});
  }
  if (!std::has_single_bit(path_mtu_bytes)) {
    return base::Error(absl::StatusCode::kInvalidArgument,
                       "option path_mtu_bytes is " + std::to_string(path_mtu_bytes),
                       {.layer = "endpoint",
                        .operation = "create",
                        .cause = "devices have path MTUs of 256, 512, 1024, 2048 and 4096 bytes",
                        .remedy = "choose one of them"});
  }
  return CheckTenants(*this);
}

}  // namespace sluice::endpoint
