// SPDX-License-Identifier: Apache-2.0
//
// Device::UsePath(): checks the settings of a path against the port, and applies them.
#include <arpa/inet.h>

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/base/error.h"
#include "transport/device/device.h"
#include "transport/device/gids.h"

namespace sluice::device {
namespace {

constexpr uint16_t kFullMember = 0x8000;
constexpr uint32_t kHighestRocePriority = 7;

struct Pkey {
  int index = -1;  // none
  uint16_t value = 0;
  std::string table;  // "0xffff, 0x8001"
};

Pkey FindPkey(const verbs::VerbsApi& api, ibv_context* context, uint8_t port, int table_length,
              uint16_t wanted) {
  Pkey found;
  for (int i = 0; i < table_length; ++i) {
    __be16 raw = 0;
    if (api.query_pkey(context, port, i, &raw) != 0) continue;
    const uint16_t value = ntohs(raw);
    if ((value & ~kFullMember) == 0) continue;  // empty
    absl::StrAppendFormat(&found.table, "%s0x%04x", found.table.empty() ? "" : ", ", value);
    if (((value ^ wanted) & ~kFullMember) != 0) continue;
    const bool better = found.index < 0 || (value & ~found.value & kFullMember) != 0;
    if (better) found.index = i, found.value = value;
  }
  return found;
}

absl::Status Unfit(absl::StatusCode code, const std::string& what, const std::string& cause,
                   const std::string& remedy) {
  return base::Error(
      code, what,
      {.layer = "device", .operation = "use path options", .cause = cause, .remedy = remedy});
}

}  // namespace

absl::Status Device::UsePath(const PathSettings& settings) {
  absl::Status status = settings.Validate();
  if (!status.ok()) return status;
  const std::string place = absl::StrCat("port ", path_.port, " of ", name_);
  ibv_port_attr port = {};
  const int error_number = api().query_port(context_.get(), path_.port, &port);
  if (error_number != 0) {
    return base::ErrnoError(error_number, "ibv_query_port", {.layer = "device"});
  }
  GidEntry gid;
  if (settings.gid_index) {
    const auto index = static_cast<int>(*settings.gid_index);
    gid = ReadGid(api(), context_.get(), path_.port, index);
    if (index >= port.gid_tbl_len) {
      return Unfit(absl::StatusCode::kInvalidArgument,
                   absl::StrCat("option path.gid_index is ", index),
                   absl::StrCat("the GID table of ", place, " has ", port.gid_tbl_len, " entries"),
                   "run sluice_info for the table");
    }
    if (gid.index < 0) {
      return Unfit(absl::StatusCode::kFailedPrecondition,
                   absl::StrCat("option path.gid_index is ", index),
                   absl::StrCat("that entry of the GID table of ", place, " is empty"),
                   "run sluice_info for the table");
    }
  }
  const bool roce = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  if (roce && settings.service_level.value_or(0) > kHighestRocePriority) {
    return Unfit(absl::StatusCode::kInvalidArgument,
                 absl::StrCat("option path.service_level is ", *settings.service_level),
                 place + " is RoCE, whose frames have priorities 0 to 7", "choose one of them");
  }
  Pkey pkey;
  if (settings.pkey) {
    pkey = FindPkey(api(), context_.get(), path_.port, port.pkey_tbl_len,
                    static_cast<uint16_t>(*settings.pkey));
    if (pkey.index < 0) {
      return Unfit(absl::StatusCode::kFailedPrecondition,
                   absl::StrFormat("option path.pkey is 0x%04x", *settings.pkey),
                   absl::StrCat("the partition table of ", place, " has no such key: ", pkey.table),
                   roce ? "leave the option out: RoCE has no partitions; use a VLAN"
                        : "have the subnet manager add this port to the partition");
    }
  }
  if (gid.index >= 0) {
    path_.sgid_index = static_cast<uint8_t>(gid.index);
    gid_ = gid.gid;
    gid_index_fixed_ = true;
  }
  if (pkey.index >= 0) {
    path_.pkey_index = static_cast<uint16_t>(pkey.index);
    pkey_ = pkey.value;
  }
  const auto byte = [](std::optional<uint32_t> value) {
    return value ? std::optional<uint8_t>(static_cast<uint8_t>(*value)) : std::nullopt;
  };
  path_.traffic_class = byte(settings.traffic_class);
  path_.service_level = byte(settings.service_level);
  path_.timeout = static_cast<uint8_t>(settings.ack_timeout);
  path_.retry_count = static_cast<uint8_t>(settings.retry_count);
  path_.rnr_retry = static_cast<uint8_t>(settings.rnr_retry);
  path_.flow_labels = static_cast<uint8_t>(settings.flow_labels);
  return absl::OkStatus();
}

}  // namespace sluice::device
