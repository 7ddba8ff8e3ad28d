// SPDX-License-Identifier: Apache-2.0
//
// OpenStack(): the production stack, over a device.
//
// Ownership     As for Stack.
// Threads       Any.
#ifndef SLUICE_MIDDLEWARE_API_OPEN_STACK_H_
#define SLUICE_MIDDLEWARE_API_OPEN_STACK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "middleware/api/options.h"
#include "middleware/api/stack.h"
#include "transport/endpoint/create.h"

namespace sluice {

// Opens the device, and creates a stack over it. `device`, `path`: as in the options. `desk`: shared by the pollers of a server.
// Errors: as in Channel::Connect(), for the device and the path.
absl::StatusOr<std::unique_ptr<Stack>> OpenStack(const std::string& device, const PathOptions& path,
                                                 std::shared_ptr<cm::RequestDesk> desk = nullptr);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_OPEN_STACK_H_
