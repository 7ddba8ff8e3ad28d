// SPDX-License-Identifier: Apache-2.0
//
// The files of a run: PREFIX.txt for people, PREFIX.json (a sluice.HardwareReport), PREFIX.dials for softdc.
//
// Threads       Pure functions over files.
#ifndef SLUICE_TOOLS_HARDWARE_REPORT_FILES_H_
#define SLUICE_TOOLS_HARDWARE_REPORT_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/hardware_report.pb.h"

namespace sluice::hardware {

absl::Status WriteReport(const HardwareReport& report, const std::string& prefix);
// From PREFIX.json. NOT_FOUND, or INVALID_ARGUMENT: it is no report.
absl::StatusOr<HardwareReport> ReadReport(const std::string& prefix);
// Steps from lines "NAME<TAB>RESULT<TAB>SECONDS<TAB>FILE"; FILE, which may be empty, has the figures.
absl::Status AddSteps(const std::string& file, HardwareReport* report);

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_REPORT_FILES_H_
