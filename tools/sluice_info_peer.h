// SPDX-License-Identifier: Apache-2.0
//
// Connects to another Sluice process and describes the state of the connection: the output of `sluice_info --peer`.
#ifndef SLUICE_TOOLS_SLUICE_INFO_PEER_H_
#define SLUICE_TOOLS_SLUICE_INFO_PEER_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "middleware/api/options.h"
#include "proto/device_info.pb.h"
#include "transport/device/device.h"

namespace sluice::tools {

// `secret_file`: what to prove to the peer; empty: nothing. `options`: of them `path` and `limits.path_mtu`. Blocks until the connection is up, has failed, or `timeout` is over; then ends it.
absl::StatusOr<ConnectionInfo> DescribeConnection(const device::Tables& tables,
                                                  const std::string& device_spec,
                                                  const std::string& host, uint16_t port,
                                                  absl::Duration timeout,
                                                  const std::string& secret_file = "",
                                                  const ChannelOptions& options = {});

std::string ConnectionText(const ConnectionInfo& connection);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SLUICE_INFO_PEER_H_
