// SPDX-License-Identifier: Apache-2.0
//
// OpenStack(): the stack of production: a device, the clock, random numbers from the kernel, a
// helper thread for calls that may block.
#ifndef SLUICE_MIDDLEWARE_API_RUNTIME_H_
#define SLUICE_MIDDLEWARE_API_RUNTIME_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "middleware/api/stack.h"

namespace sluice {

// `device`: "auto" or a device's name.
absl::StatusOr<std::unique_ptr<Stack>> OpenStack(const std::string& device,
                                                 const PathOptions& path);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_RUNTIME_H_
