// SPDX-License-Identifier: Apache-2.0
#include "transport/device/path_settings.h"

#include <string>

#include "transport/base/error.h"

namespace sluice::device {
namespace {

absl::Status InRange(const char* name, std::optional<uint32_t> value, uint32_t low, uint32_t high) {
  if (!value || (*value >= low && *value <= high)) return absl::OkStatus();
  return base::Error(absl::StatusCode::kInvalidArgument,
                     "option path." + std::string(name) + " is " + std::to_string(*value),
                     {.layer = "device",
                      .operation = "validate options",
                      .cause = "allowed is " + std::to_string(low) + " to " + std::to_string(high),
                      .remedy = "change the value"});
}

}  // namespace

absl::Status PathSettings::Validate() const {
  const struct {
    const char* name;
    std::optional<uint32_t> value;
    uint32_t low, high;
  } checks[] = {
      {"gid_index", gid_index, 0, 254},        {"traffic_class", traffic_class, 0, 255},
      {"service_level", service_level, 0, 15}, {"pkey", pkey, 1, 65535},
      {"ack_timeout", ack_timeout, 1, 31},     {"retry_count", retry_count, 0, 7},
      {"rnr_retry", rnr_retry, 0, 6},          {"flow_labels", flow_labels, 1, 64},
  };
  for (const auto& check : checks) {
    absl::Status status = InRange(check.name, check.value, check.low, check.high);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice::device
