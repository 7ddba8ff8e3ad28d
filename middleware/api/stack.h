// SPDX-License-Identifier: Apache-2.0
//
// Stack: what a Channel, a Runtime or a Server stands on. open_stack.cc makes the one in production; tests
// bring their own, over a fake endpoint.
//
// Who owns it   The Channel or Server; it outlives the endpoint it made.
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
  // Where those say something who are not told where. May be nullptr: nowhere.
  virtual base::LogSink* log() = 0;
  // Once. `log` and `handler` outlive the endpoint. `tenants`: a server's, or empty.
  virtual absl::StatusOr<std::unique_ptr<endpoint::Endpoint>> CreateEndpoint(
      const EndpointLimits& limits, const Authentication& authentication,
      const std::vector<Tenant>& tenants, base::LogSink* log, endpoint::Handler* handler) = 0;
  // "softdc0, because …".
  virtual const std::string& device_choice() const = 0;
  virtual const verbs::CapabilityReport& capabilities() const = 0;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_STACK_H_
