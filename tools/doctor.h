// SPDX-License-Identifier: Apache-2.0
//
// Doctor: finds settings of this host that prevent or slow down Sluice, with the remedy for each: `sluice_info --check`.
//
// Purpose       Reads sysfs and procfs below a given folder, so that a test can provide its own, and the reports of the devices
//               (SystemInfo). It changes nothing, and sends nothing.
// Threads       Any: pure functions over files.
#ifndef SLUICE_TOOLS_DOCTOR_H_
#define SLUICE_TOOLS_DOCTOR_H_

#include <string>

#include "proto/device_info.pb.h"

namespace sluice::tools {

// `root`: "" for this host, or a folder with sys/, proc/ and dev/ in it. `system.devices` may be empty.
CheckReport Examine(const std::string& root, const SystemInfo& system);

// One line a finding, two with a remedy.
std::string CheckText(const CheckReport& report);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_DOCTOR_H_
