// SPDX-License-Identifier: Apache-2.0
//
// ServerChain: a server's authorisation and interceptors, at the gate of its engine.
//
// Who owns it   The server.
// Which thread  Its polling thread.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_
#define SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/interceptor.h"
#include "middleware/api/options.h"
#include "middleware/api/server_context.h"
#include "middleware/call/gate.h"

namespace sluice {

class ServerChain final : public call::Gate {
 public:
  explicit ServerChain(const ServerOptions& options)
      : authorize_(options.authorize), interceptors_(options.interceptors) {}
  bool empty() const { return !authorize_ && interceptors_.empty(); }

  absl::Status OnCall(const call::Incoming& incoming) override {
    const ServerContext context(incoming);
    absl::Status status = authorize_ ? authorize_(context) : absl::OkStatus();
    for (size_t i = 0; status.ok() && i < interceptors_.size(); ++i) {
      status = interceptors_[i]->OnCall(context);
      if (!status.ok()) End(context, i, status, absl::ZeroDuration());
    }
    return status;
  }
  void OnEnd(const call::Incoming& incoming, const absl::Status& status, int64_t now_ns) override {
    End(ServerContext(incoming), interceptors_.size(), status,
        absl::Nanoseconds(now_ns - incoming.received_ns));
  }

 private:
  void End(const ServerContext& context, size_t count, const absl::Status& status,
           absl::Duration took) const {
    while (count-- > 0) interceptors_[count]->OnEnd(context, status, took);
  }

  const decltype(ServerOptions::authorize) authorize_;
  const decltype(ServerOptions::interceptors) interceptors_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_
