// SPDX-License-Identifier: Apache-2.0
//
// Stack: the environment of a Channel, a Runtime or a Server: device or fake network, clock, random source, commands. open_stack.cc creates
// the production stack. Tests create their own stacks over a fake endpoint.
//
// Ownership     The Channel or Server. It outlives the endpoint that it created.
#ifndef SLUICE_MIDDLEWARE_API_STACK_H_
#define SLUICE_MIDDLEWARE_API_STACK_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "middleware/api/options.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"
#include "transport/base/random.h"
#include "transport/endpoint/endpoint.h"
#include "transport/verbs/capabilities.h"

namespace sluice {

class Stack {
 public:
  virtual ~Stack() = default;
  virtual base::Clock* clock() = 0;
  virtual base::Random* random() = 0;
  // Log of objects whose options have no log. nullptr: these objects do not log.
  virtual base::LogSink* log() = 0;
  // Creates the endpoint. Called once. `log` and `handler` outlive the endpoint. `tenants`: tenants of a server, or empty.
  virtual absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication& authentication,
      const std::vector<Tenant>& tenants, base::LogSink* log, endpoint::Handler* handler) = 0;
  // "softdc0, because …".
  virtual const std::string& device_choice() const = 0;
  virtual const verbs::CapabilityReport& capabilities() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STACK_H_
