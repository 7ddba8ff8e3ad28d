// SPDX-License-Identifier: Apache-2.0
//
// What this program was built from and with.
#ifndef SLUICE_TOOLS_BUILD_INFO_H_
#define SLUICE_TOOLS_BUILD_INFO_H_

#include <string>

#include "proto/device_info.pb.h"

namespace sluice::tools {

BuildInfo ThisBuild();
// "0.1.0-dev opt".
std::string ThisBuildText();

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_BUILD_INFO_H_
