// SPDX-License-Identifier: Apache-2.0
//
// DialFile: settings of softdc in the text format of proto/softdc_config.proto.
//
// Threads       A value.
#ifndef SLUICE_TOOLS_HARDWARE_DIAL_FILE_H_
#define SLUICE_TOOLS_HARDWARE_DIAL_FILE_H_

#include <map>
#include <string>
#include <string_view>

#include "tools/hardware/probe.h"

namespace sluice::hardware {

class DialFile {
 public:
  // A dial that is set again keeps the later value; of `in_order` the weaker promise.
  void Set(const Dial& dial);
  // A group on each line: "streams { max_log_errored: 0 }". Empty: softdc with its defaults.
  std::string Text(std::string_view between) const;

 private:
  std::map<std::string, std::map<std::string, std::string>> groups_;
};

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_DIAL_FILE_H_
