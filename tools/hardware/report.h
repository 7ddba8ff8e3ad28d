// SPDX-License-Identifier: Apache-2.0
//
// A HardwareReport for people.
//
// Threads       Pure functions.
#ifndef SLUICE_TOOLS_HARDWARE_REPORT_H_
#define SLUICE_TOOLS_HARDWARE_REPORT_H_

#include <string>

#include "proto/hardware_report.pb.h"

namespace sluice::hardware {

// One row: verdict, probe, facts; below it claim, answer, and what a difference changes.
std::string RowText(const HardwareRow& row);
// The whole: head, steps, rows, counts, the dial file.
std::string ReportText(const HardwareReport& report);

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_REPORT_H_
