// SPDX-License-Identifier: Apache-2.0
//
// Fills a sluice.SystemInfo: the build, each device of each table, and what Sluice makes of it.
#ifndef SLUICE_TOOLS_SLUICE_INFO_COLLECT_H_
#define SLUICE_TOOLS_SLUICE_INFO_COLLECT_H_

#include "proto/device_info.pb.h"
#include "transport/device/device.h"

namespace sluice::tools {

// Opens each device for a moment. Devices that can't be opened are listed with the reason.
SystemInfo CollectSystemInfo(const device::Tables& tables);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SLUICE_INFO_COLLECT_H_
