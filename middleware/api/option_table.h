// SPDX-License-Identifier: Apache-2.0
//
// Option: one option, identified by its name in files, in the environment, in `sluice_info --config` and in the documentation. options.h
// describes each option; Validate() there checks the values.
//
// Ownership     An Option points into the struct that it was created from.
// Threads       As the struct.
#ifndef SLUICE_MIDDLEWARE_API_OPTION_TABLE_H_
#define SLUICE_MIDDLEWARE_API_OPTION_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "middleware/api/options.h"

namespace sluice {

struct Option {
  using Value = std::variant<uint32_t*, uint64_t*, double*, absl::Duration*, std::string*, Lanes*,
                             Balancing*, LogLevel*, std::optional<uint32_t>*>;
  std::string name;  // "limits.max_message_bytes"
  Value value;
  // Range of a number, or of a time in seconds. Both 0: no range; see `allowed`. An optional number may also be "auto".
  double low = 0;
  double high = 0;
  std::string allowed;  // as text: "1024 to 1048576", "off, auto, on"
  std::string meaning;

  std::string Text() const;
  // Sets the value from text. Returns an error text, or an empty string if the text has the right form. Does not check the range.
  std::string Set(std::string_view text) const;
};

std::vector<Option> OptionsOf(ChannelOptions* options);
std::vector<Option> OptionsOf(ServerOptions* options);
std::vector<Option> OptionsOf(MessengerOptions* options);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_OPTION_TABLE_H_
