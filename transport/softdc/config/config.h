// SPDX-License-Identifier: Apache-2.0
//
// Reads dials from a text-format sluice.softdc.Config (proto/softdc_config.proto).
//
// Threads       Any.
#ifndef SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_
#define SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

// Parses a text. Returns INVALID_ARGUMENT with the invalid setting or the place in the text, and the
// permitted values. An empty text gives the defaults.
absl::StatusOr<Dials> ParseDials(std::string_view text);

// Checks dials that code has set, in the same way as ParseDials.
absl::Status CheckDials(const Dials& dials);

// Loads dials from a value of SOFTDC_CONFIG: a text, or "@" and the name of a file.
absl::StatusOr<Dials> LoadDials(std::string_view value);

// Returns the dials of SOFTDC_CONFIG of this process, read at the first call. Returns the defaults if it is
// not set.
const absl::StatusOr<Dials>& EnvironmentDials();

// Returns the same dials. If the text is invalid, writes the reason to standard error and aborts the process.
const Dials& DialsOfThisProcess();

// Returns the settings that differ from the defaults, in the format of ParseDials. Empty if none differs.
std::string PrintDials(const Dials& dials);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_
