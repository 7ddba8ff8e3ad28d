// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/hardware/probe.h"

namespace sluice::hardware {
namespace {

const char* VerdictText(HardwareVerdict verdict) {
  switch (verdict) {
    case HARDWARE_AS_SOFTDC:
      return "as softdc";
    case HARDWARE_DIFFERS:
      return "DIFFERS";
    default:
      return "not tried";
  }
}

}  // namespace

std::string RowText(const HardwareRow& row) {
  std::string text = absl::StrFormat("%-10s %s (facts %s)\n", VerdictText(row.verdict()),
                                     row.probe(), row.facts());
  if (row.verdict() == HARDWARE_NOT_TRIED) {
    return text + absl::StrFormat("  why        %s\n", row.answer());
  }
  absl::StrAppendFormat(&text, "  claim      %s\n  answer     %s\n", row.claim(), row.answer());
  if (row.verdict() == HARDWARE_DIFFERS) {
    absl::StrAppendFormat(&text, "  changes    %s\n  dial       %s\n", row.changes(),
                          row.dial().empty() ? "none: softdc can't answer so" : row.dial());
  }
  return text;
}

std::string ReportText(const HardwareReport& report) {
  std::string text = absl::StrFormat(
      "device     %s, vendor 0x%04x, part %u, firmware %s\npeer       %s\nsystem     %s, as %s\n\n",
      report.device(), report.vendor_id(), report.vendor_part_id(), report.firmware(),
      report.peer().empty() ? "none: both ends on this host" : report.peer(), report.system(),
      report.user());
  for (const HardwareStep& step : report.steps()) {
    absl::StrAppendFormat(&text, "step       %s: %s, %.0f s\n", step.name(), step.result(),
                          step.seconds());
    const std::vector<std::string> lines = absl::StrSplit(step.figures(), '\n', absl::SkipEmpty());
    for (const std::string& line : lines) {
      absl::StrAppend(&text, "             ", line, "\n");
    }
  }
  if (report.steps_size() > 0) absl::StrAppend(&text, "\n");
  int counts[3] = {};
  std::vector<std::string> need_dc;
  for (const HardwareRow& row : report.rows()) {
    if (row.verdict() == HARDWARE_NOT_TRIED && row.answer() == kNoDc) {
      need_dc.push_back(row.probe());
    } else {
      absl::StrAppend(&text, RowText(row));
    }
    if (row.verdict() >= 0 && row.verdict() < 3) ++counts[row.verdict()];
  }
  if (!need_dc.empty()) {
    absl::StrAppendFormat(&text, "not tried  %s\n  why        %s\n", absl::StrJoin(need_dc, ", "),
                          kNoDc);
  }
  absl::StrAppendFormat(&text, "\n%d probes: %d as softdc, %d differ, %d not tried\n",
                        report.rows_size(), counts[HARDWARE_AS_SOFTDC], counts[HARDWARE_DIFFERS],
                        counts[HARDWARE_NOT_TRIED]);
  absl::StrAppend(&text, "\nsoftdc answers as this device with the dials\n",
                  report.dials().empty() ? "  (its defaults)" : report.dials(), "\n");
  return text;
}

}  // namespace sluice::hardware
