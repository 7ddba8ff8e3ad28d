// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/dial_file.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace sluice::hardware {

void DialFile::Set(const Dial& dial) {
  std::string& value = groups_[dial.group][dial.name];
  if (dial.name == "in_order" && value == "NONE") return;
  value = dial.value;
}

std::string DialFile::Text(std::string_view between) const {
  std::vector<std::string> lines;
  for (const auto& [group, dials] : groups_) {
    std::string line = group + " {";
    for (const auto& [name, value] : dials) absl::StrAppend(&line, " ", name, ": ", value);
    lines.push_back(line + " }");
  }
  return absl::StrJoin(lines, std::string(between));
}

}  // namespace sluice::hardware
