// SPDX-License-Identifier: Apache-2.0
//
// ClientInterceptor, ServerInterceptor: see each call on its way, and may refuse it: for tokens, logs, quotas, traces.
//
//   class WithToken final : public sluice::ClientInterceptor {
//     absl::Status OnCall(sluice::ClientCall& call) override { return call.AddMetadata("token", token_); }
//   };
//   options.interceptors = {std::make_shared<WithToken>()};
//
// Order         As in the options: the first of a channel's list sees a call first, and its end last; so at a server. One
//               that refuses ends the call with its status: those behind it don't see it, those before it see the end.
// Attempts      A channel's interceptors see a call once, whatever number of attempts it takes; a server's see each.
// Who owns it   The options, and the channel or server made with them.
// Thread-safety A channel's: any thread, several at a time; OnEnd() on whichever drives the channel, where it must not
//               block. A server's: its polling thread, where it must not block either.
// Exceptions    One that leaves authorize or OnCall() ends the call with UNKNOWN, as a refusal does. One that leaves OnEnd() is only logged.
// Cost          None where there are none. At a channel one allocation a call.
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

// A call as its channel's interceptors see it.
class ClientCall {
 public:
  ClientCall(const call::Method& method, const std::string& server, std::string_view metadata)
      : method_(&method), server_(&server), metadata_(Metadata::FromWire(metadata)) {}

  // "/package.Service/Method".
  const char* method() const { return method_->full_name; }
  // As given to Channel::Connect().
  const std::string& server() const { return *server_; }
  // What goes with the request; in OnCall() it may be added to.
  const Metadata& metadata() const { return metadata_; }
  absl::Status AddMetadata(std::string_view key, std::string_view value) {
    return metadata_.Add(key, value);
  }

 private:
  const call::Method* method_;
  const std::string* server_;
  Metadata metadata_;
};

class ClientInterceptor {
 public:
  virtual ~ClientInterceptor() = default;
  // Before the call starts. Anything but OK is the call's end.
  virtual absl::Status OnCall(ClientCall& /*call*/) { return absl::OkStatus(); }
  // Once for each OnCall() that said OK. `took`: since then.
  virtual void OnEnd(const ClientCall& /*call*/, const absl::Status& /*status*/,
                     absl::Duration /*took*/) {}
};

class ServerInterceptor {
 public:
  virtual ~ServerInterceptor() = default;
  // Before the handler, and before the request is parsed. Anything but OK is the answer; the caller's channel knows then that
  // no handler ran. `context` is valid until it returns.
  virtual absl::Status OnCall(const ServerContext& /*context*/) { return absl::OkStatus(); }
  // The answer is on its way, or its caller is gone. Once for each OnCall() that said OK. `took`: since the request came in.
  virtual void OnEnd(const ServerContext& /*context*/, const absl::Status& /*status*/,
                     absl::Duration /*took*/) {}
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_INTERCEPTOR_H_
