// SPDX-License-Identifier: Apache-2.0
#include "tools/softdc_run_options.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice::tools {

absl::StatusOr<SoftdcRunOptions> ParseSoftdcRunOptions(const std::vector<std::string>& arguments) {
  SoftdcRunOptions options;
  size_t next = 0;
  for (; next < arguments.size(); ++next) {
    const std::string& argument = arguments[next];
    if (argument == "--") {
      ++next;
      break;
    }
    if (!absl::StartsWith(argument, "-")) break;
    if (argument == "--help" || argument == "-h") {
      options.help = true;
      return options;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(0, equals);
    std::string* value = name == "--domain"   ? &options.domain
                         : name == "--config" ? &options.config_file
                                              : nullptr;
    if (value == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("there is no option ", name, "; see softdc_run --help"));
    }
    if (equals == std::string::npos && ++next == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    }
    *value = equals == std::string::npos ? arguments[next] : argument.substr(equals + 1);
    if (value->empty()) return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
  }
  options.program.assign(arguments.begin() + static_cast<ptrdiff_t>(next), arguments.end());
  if (options.program.empty()) {
    return absl::InvalidArgumentError("no program given; see softdc_run --help");
  }
  return options;
}

}  // namespace sluice::tools
