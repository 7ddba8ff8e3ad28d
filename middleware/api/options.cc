// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/options.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"
#include "transport/base/error.h"

namespace sluice {
namespace {

absl::Status Bad(absl::string_view name, absl::string_view value, absl::string_view allowed) {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("option ", name, " is ", value),
                     {.layer = "api",
                      .operation = "validate options",
                      .cause = absl::StrCat("allowed is ", allowed),
                      .remedy = "change the value",
                      .retry_safe = true});
}

absl::Status InRange(absl::string_view name, uint64_t value, uint64_t low, uint64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(name, absl::StrCat(value), absl::StrCat(low, " to ", high));
}

absl::Status InRange(absl::string_view name, absl::Duration value, absl::Duration low,
                     absl::Duration high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(name, absl::FormatDuration(value),
             absl::StrCat(absl::FormatDuration(low), " to ", absl::FormatDuration(high)));
}

// Returns the first status that is not OK; otherwise OK.
template <typename... Statuses>
absl::Status All(const Statuses&... statuses) {
  absl::Status first;
  ((first.ok() ? first = statuses : first), ...);
  return first;
}

absl::Status CheckLanes(const EndpointLimits& limits) {
  return All(InRange("lanes", static_cast<uint64_t>(limits.lanes), 0, 2),
             InRange("lane_memory_bytes", limits.lane_memory_bytes, 0, 1u << 30),
             InRange("lane_slots", limits.lane_slots, 4, 4096),
             limits.lane_slot_bytes % 128 == 0
                 ? InRange("lane_slot_bytes", limits.lane_slot_bytes, 128, 4096)
                 : Bad("lane_slot_bytes", absl::StrCat(limits.lane_slot_bytes),
                       "a multiple of 128, to 4096"),
             InRange("lane_after_messages", limits.lane_after_messages, 1, 1u << 15));
}

absl::Status Common(const std::string& device, const EndpointLimits& limits,
                    const PathOptions& path, const Authentication& authentication,
                    absl::Duration spin) {
  return All(
      authentication.Validate(), path.Validate(),
      device.empty() ? Bad("device", "empty", "\"auto\" or a device's name") : absl::OkStatus(),
      InRange("max_message_bytes", limits.max_message_bytes, 1024, 1u << 20),
      InRange("max_large_message_bytes", limits.max_large_message_bytes, 0, INT32_MAX),
      InRange("large_memory_bytes", limits.large_memory_bytes, limits.max_large_message_bytes,
              uint64_t{1} << 40),
      InRange("credits_per_peer", limits.credits_per_peer, 4, 4096),
      InRange("receive_buffers", limits.receive_buffers,
              std::max<uint32_t>(16, limits.credits_per_peer), 32768),
      InRange("max_rc_queue_pairs", limits.max_rc_queue_pairs, 0, 65535),
      InRange("keepalive", limits.keepalive, absl::ZeroDuration(), absl::Hours(1)),
      InRange("dead_peer_timeout", limits.dead_peer_timeout, absl::Milliseconds(10),
              absl::Seconds(60)),
      std::has_single_bit(limits.path_mtu)
          ? InRange("path_mtu", limits.path_mtu, 256, 4096)
          : Bad("path_mtu", absl::StrCat(limits.path_mtu), "256, 512, 1024, 2048 or 4096"),
      CheckLanes(limits), InRange("spin", spin, absl::ZeroDuration(), absl::Seconds(1)));
}

bool HasSecrets(const Authentication& authentication) {
  return !authentication.secret_file.empty() || authentication.secret_source;
}

// Does not check the names and the number of tenants: the endpoint checks them.
absl::Status CheckTenants(const std::vector<Tenant>& tenants, const Authentication& common,
                          const EndpointLimits& limits) {
  if (!tenants.empty() && HasSecrets(common)) {
    return Bad("authentication", "set beside tenants", "each tenant's own, and none in common");
  }
  for (const Tenant& tenant : tenants) {
    absl::Status status =
        All(tenant.authentication.Validate(),
            HasSecrets(tenant.authentication)
                ? absl::OkStatus()
                : Bad(absl::StrCat("authentication of tenant \"", tenant.name, "\""), "empty",
                      "a secret_file or a secret_source"),
            InRange("receive_buffers of a tenant", tenant.receive_buffers,
                    std::max<uint32_t>(16, limits.credits_per_peer), 32768),
            InRange("max_peers of a tenant", tenant.max_peers, 1, 65536));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Authentication::Validate() const {
  if (secret_file.empty() || !secret_source) return absl::OkStatus();
  return Bad("authentication", "both a secret_file and a secret_source", "one of them, or neither");
}

absl::Status RuntimeOptions::Validate() const {
  return Common(device, limits, path, authentication, spin);
}

absl::Status ChannelOptions::Validate() const {
  return All(Common(device, limits, path, authentication, spin),
             InRange("connect_timeout", connect_timeout, absl::Milliseconds(1), absl::Hours(1)),
             InRange("max_outstanding_calls", max_outstanding_calls, 1, 1u << 20),
             InRange("stream_window", stream_window, call::StreamEnd::kWindow,
                     call::StreamEnd::kMaxWindow),
             InRange("backoff_min", backoff_min, absl::Milliseconds(1), absl::Hours(1)),
             InRange("backoff_max", backoff_max, backoff_min, absl::Hours(1)),
             InRange("trace_records", trace_records, 0, 1u << 20),
             InRange("health.period", health.period, absl::ZeroDuration(), absl::Hours(1)),
             InRange("retry.max_attempts", retry.max_attempts, 1, call::RetryPolicy::kMaxAttempts),
             InRange("retry.pause_min", retry.pause_min, absl::Milliseconds(1), absl::Minutes(1)),
             InRange("retry.pause_max", retry.pause_max, retry.pause_min, absl::Minutes(1)),
             InRange("retry.budget", retry.budget, 0, 1'000'000),
             retry.refill >= 0 && retry.refill <= 1
                 ? absl::OkStatus()
                 : Bad("retry.refill", absl::StrCat(retry.refill), "0 to 1"));
}

absl::Status ServerOptions::Validate() const {
  return All(Common(device, limits, path, authentication, spin),
             CheckTenants(tenants, authentication, limits),
             InRange("max_waiting_replies_per_peer", max_waiting_replies_per_peer, 1, 1u << 20),
             InRange("max_waiting_bytes_per_peer", max_waiting_bytes_per_peer,
                     limits.max_message_bytes, uint64_t{1} << 40),
             InRange("max_concurrent_calls", max_concurrent_calls, 1, 1u << 24),
             InRange("stream_window", stream_window, call::StreamEnd::kWindow,
                     call::StreamEnd::kMaxWindow),
             InRange("executor.max_waiting_calls", executor.max_waiting_calls, 1, 1u << 24),
             InRange("executor.max_wait", executor.max_wait, absl::ZeroDuration(), absl::Hours(1)),
             InRange("slow_call", slow_call, absl::Microseconds(1), absl::Hours(1)),
             InRange("pollers", pollers, 1, driving == Driving::kCaller ? 1 : 64),
             InRange("trace_records", trace_records, 0, 1u << 20));
}

absl::Status MessengerOptions::Validate() const {
  return All(Common(device, limits, path, authentication, spin),
             CheckTenants(tenants, authentication, limits),
             InRange("connect_timeout", connect_timeout, absl::Milliseconds(1), absl::Hours(1)),
             InRange("max_flows", max_flows, 1, 1u << 24));
}

}  // namespace sluice
