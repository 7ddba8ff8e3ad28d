// SPDX-License-Identifier: Apache-2.0
//
// ServerContext: what a handler may know about the call it serves. Valid while the handler runs.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_
#define SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "middleware/call/method.h"

namespace sluice {

class ServerContext {
 public:
  explicit ServerContext(const call::Incoming& incoming) : incoming_(incoming) {}
  ServerContext(const ServerContext&) = delete;
  ServerContext& operator=(const ServerContext&) = delete;

  // Address of the caller.
  const std::string& peer() const { return *incoming_.peer; }
  // Whose secret the caller has proved; empty where ServerOptions::tenants is.
  const std::string& tenant() const { return *incoming_.tenant; }
  // "/package.Service/Method".
  const char* method() const { return incoming_.method->full_name; }

  // When the caller stops waiting, on CLOCK_MONOTONIC of this host, the way here not counted;
  // call::kNoDeadlineNs if it never does.
  int64_t deadline_ns() const { return incoming_.deadline_ns; }
  // What of the caller's timeout was left when the request came in.
  absl::Duration time_left_on_arrival() const {
    return incoming_.deadline_ns == call::kNoDeadlineNs
               ? absl::InfiniteDuration()
               : absl::Nanoseconds(incoming_.deadline_ns - incoming_.received_ns);
  }

 private:
  const call::Incoming& incoming_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_CONTEXT_H_
