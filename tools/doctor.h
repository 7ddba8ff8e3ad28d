// SPDX-License-Identifier: Apache-2.0
//
// Doctor: what of this host keeps Sluice from working, or from working well, and what to do about each. `sluice_info --check`.
//
// What it reads sysfs and procfs below a folder that it is given, so that a test brings its own; and what the providers said of
//               their devices (SystemInfo). It changes nothing, and sends nothing.
// Thread-safety Pure functions of files.
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
