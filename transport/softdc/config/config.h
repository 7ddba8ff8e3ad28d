// SPDX-License-Identifier: Apache-2.0
//
// Dials from a text-format sluice.softdc.Config (proto/softdc_config.proto).
//
// Threads       All functions may be called from any thread.
#ifndef SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_
#define SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/softdc/config/dials.h"

namespace sluice::softdc {

// INVALID_ARGUMENT says which setting, where in the text, and what is allowed. An empty text gives
// the defaults.
absl::StatusOr<Dials> ParseDials(std::string_view text);

// What no device could have, for dials that code filled in: the same checks as ParseDials makes.
absl::Status CheckDials(const Dials& dials);

// `value` as SOFTDC_CONFIG has it: the text itself, or "@" and a file's name.
absl::StatusOr<Dials> LoadDials(std::string_view value);

// SOFTDC_CONFIG of this process, read at the first call; the defaults when it is not set.
const absl::StatusOr<Dials>& EnvironmentDials();

// The same. A text that is wrong names no device: writes the reason to standard error and aborts.
const Dials& DialsOfThisProcess();

// The settings that differ from the defaults, as text that ParseDials takes; "" when none does.
std::string PrintDials(const Dials& dials);

}  // namespace sluice::softdc

#endif  // SLUICE_TRANSPORT_SOFTDC_CONFIG_CONFIG_H_
