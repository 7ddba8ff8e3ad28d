// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/report_files.h"

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/util/json_util.h"
#include "tools/hardware/report.h"
#include "tools/json_output.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr size_t kMaxFigureBytes = 4096;

absl::Status Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (file.good()) return absl::OkStatus();
  return base::ErrnoError(errno != 0 ? errno : EIO, "writing " + path,
                          {.layer = "hardware",
                           .operation = "report",
                           .remedy = "give a folder that this user may write to"});
}

absl::StatusOr<std::string> Read(const std::string& path) {
  std::ifstream file(path);
  if (!file.good()) {
    return base::Error(absl::StatusCode::kNotFound, "no file " + path,
                       {.layer = "hardware", .operation = "report"});
  }
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

absl::Status WriteReport(const HardwareReport& report, const std::string& prefix) {
  absl::Status status = Write(prefix + ".txt", ReportText(report));
  if (status.ok()) status = Write(prefix + ".dials", report.dials() + "\n");
  return status.ok() ? tools::WriteJson(report, prefix + ".json") : status;
}

absl::StatusOr<HardwareReport> ReadReport(const std::string& prefix) {
  const auto text = Read(prefix + ".json");
  if (!text.ok()) return text.status();
  HardwareReport report;
  const auto parsed = google::protobuf::util::JsonStringToMessage(*text, &report);
  if (parsed.ok()) return report;
  return base::Error(absl::StatusCode::kInvalidArgument, prefix + ".json is no report",
                     {.layer = "hardware", .operation = "report", .cause = parsed.ToString()});
}

absl::Status AddSteps(const std::string& file, HardwareReport* report) {
  const auto text = Read(file);
  if (!text.ok()) return text.status();
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, '\t');
    double seconds = 0;
    if (fields.size() != 4 || !absl::SimpleAtod(fields[2], &seconds)) {
      return base::Error(absl::StatusCode::kInvalidArgument,
                         absl::StrCat(file, ": no step: ", line),
                         {.layer = "hardware", .operation = "report"});
    }
    HardwareStep* const step = report->add_steps();
    step->set_name(fields[0]);
    step->set_result(fields[1]);
    step->set_seconds(seconds);
    if (!fields[3].empty())
      step->set_figures(Read(fields[3]).value_or("").substr(0, kMaxFigureBytes));
  }
  return absl::OkStatus();
}

}  // namespace sluice::hardware
