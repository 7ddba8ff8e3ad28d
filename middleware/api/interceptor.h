// SPDX-License-Identifier: Apache-2.0
//
// ClientInterceptor, ServerInterceptor: run code before and after each call, and may refuse it. For
// tokens, logs, quotas, traces.
//
//   class WithToken final : public sluice::ClientInterceptor {
//     absl::Status OnCall(sluice::ClientCall& call) override { return call.AddMetadata("token", token_); }
//   };
//   options.interceptors = {std::make_shared<WithToken>()};
//
// Order         As in the options: the first interceptor of the list gets OnCall() first and
//               OnEnd() last. If an interceptor refuses, the call ends with its status:
//               interceptors behind it do not see the call, interceptors before it get OnEnd().
// Retries       A channel's interceptors see a call once, regardless of the number of attempts. A
//               server's interceptors see each attempt.
// Ownership     The options and the channel or server created with them share it.
// Threads       Channel: OnCall() on any thread, several at a time; OnEnd() on the thread that
//               drives the channel, where it must not block. Server: the polling thread, where it
//               must not block.
// Exceptions    If authorize or OnCall() throws, the call ends with UNKNOWN, as with a refusal. If
//               OnEnd() throws, the exception is only logged.
// Cost          Without interceptors none. In a channel one allocation per call.
#ifndef SLUICE_MIDDLEWARE_API_INTERCEPTOR_H_
#define SLUICE_MIDDLEWARE_API_INTERCEPTOR_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/metadata.h"
#include "middleware/api/server_context.h"
#include "middleware/call/method.h"

namespace sluice {

// A call as the interceptors of its channel see it. Valid during OnCall() and OnEnd().
class ClientCall {
 public:
  ClientCall(const call::Method& method, const std::string& server, std::string_view metadata)
      : method_(&method), server_(&server), metadata_(Metadata::FromWire(metadata)) {}

  // "/package.Service/Method".
  const char* method() const { return method_->full_name; }
  // The address given to Channel::Connect().
  const std::string& server() const { return *server_; }
  // Metadata of the request. OnCall() may add entries.
  const Metadata& metadata() const { return metadata_; }
  absl::Status AddMetadata(std::string_view key, std::string_view value) {
    return metadata_.Add(key, value);
  }
  // Replaces the entries of the key.
  absl::Status SetMetadata(std::string_view key, std::string_view value) {
    return metadata_.Set(key, value);
  }

 private:
  const call::Method* method_;
  const std::string* server_;
  Metadata metadata_;
};

class ClientInterceptor {
 public:
  virtual ~ClientInterceptor() = default;
  // Runs before the call starts. A status other than OK ends the call with that status.
  virtual absl::Status OnCall(ClientCall& /*call*/) { return absl::OkStatus(); }
  // Runs once for each OnCall() that returned OK. `took`: time since OnCall().
  virtual void OnEnd(const ClientCall& /*call*/, const absl::Status& /*status*/,
                     absl::Duration /*took*/) {}
};

class ServerInterceptor {
 public:
  virtual ~ServerInterceptor() = default;
  // Runs before the request is parsed and before the handler. A status other than OK is the reply,
  // which also states that no handler ran. `context` is valid until OnCall() returns.
  virtual absl::Status OnCall(const ServerContext& /*context*/) { return absl::OkStatus(); }
  // Runs once for each OnCall() that returned OK, when the reply was sent or the caller has
  // disconnected. `took`: time since the request arrived.
  virtual void OnEnd(const ServerContext& /*context*/, const absl::Status& /*status*/,
                     absl::Duration /*took*/) {}
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_INTERCEPTOR_H_
