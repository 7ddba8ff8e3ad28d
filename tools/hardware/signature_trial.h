// SPDX-License-Identifier: Apache-2.0
//
// One loopback transfer of protected blocks, one of which has a wrong CRC32C.
//
// Threads       Blocks its thread.
#ifndef SLUICE_TOOLS_HARDWARE_SIGNATURE_TRIAL_H_
#define SLUICE_TOOLS_HARDWARE_SIGNATURE_TRIAL_H_

#include "absl/status/statusor.h"
#include "tools/hardware/probe.h"
#include "transport/verbs/rc.h"

namespace sluice::hardware {

absl::StatusOr<Answer> TryWrongCrc(const Nic& nic);

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_SIGNATURE_TRIAL_H_
