// SPDX-License-Identifier: Apache-2.0
//
// The command line of softdc_run: its own options, then a program and its arguments, which are left alone.
#ifndef SLUICE_TOOLS_SOFTDC_RUN_OPTIONS_H_
#define SLUICE_TOOLS_SOFTDC_RUN_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice::tools {

inline constexpr char kSoftdcRunHelp[] =
    R"(usage: softdc_run [options] [--] PROGRAM [ARGUMENTS]

Runs a program that was built for libibverbs, libmlx5 or librdmacm on softdc, the software DC NIC.
The processes of a user on a host that have the same domain reach each other.

  --domain NAME   the fabric to be on; default: SOFTDC_DOMAIN of the environment, else "0"
  --config FILE   what the device can do, a sluice.softdc.Config in protobuf text format;
                  default: SOFTDC_CONFIG of the environment, else a device that can do everything
  --help          this text

  softdc_run ibv_devinfo -v
  softdc_run ib_send_bw -c DC & softdc_run ib_send_bw -c DC localhost
)";

struct SoftdcRunOptions {
  bool help = false;
  std::string domain;                // empty: not given
  std::string config_file;           // empty: not given
  std::vector<std::string> program;  // its name and its arguments; not empty unless help
};

// INVALID_ARGUMENT: the message is for the user.
absl::StatusOr<SoftdcRunOptions> ParseSoftdcRunOptions(const std::vector<std::string>& arguments);

}  // namespace sluice::tools

#endif  // SLUICE_TOOLS_SOFTDC_RUN_OPTIONS_H_
