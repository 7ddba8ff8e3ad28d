// SPDX-License-Identifier: Apache-2.0
//
// ServerChain: runs a server's authorize function and interceptors, as the gate of its engine.
//
// Ownership     The server owns it.
// Threads       The server's polling thread.
#ifndef SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_
#define SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "middleware/api/interceptor.h"
#include "middleware/api/options.h"
#include "middleware/api/server_context.h"
#include "middleware/call/gate.h"
#include "middleware/call/server_engine.h"

namespace sluice {

class ServerChain final : public call::Gate {
 public:
  explicit ServerChain(const ServerOptions& options)
      : authorize_(options.authorize), interceptors_(options.interceptors) {}
  bool empty() const { return !authorize_ && interceptors_.empty(); }

  absl::Status OnCall(const call::Incoming& incoming) override {
    const ServerContext context(incoming);
    absl::Status status;
    if (authorize_) status = Guard("authorize", incoming, [&] { return authorize_(context); });
    for (size_t i = 0; status.ok() && i < interceptors_.size(); ++i) {
      status = Guard("interceptor", incoming, [&] { return interceptors_[i]->OnCall(context); });
      if (!status.ok()) End(incoming, context, i, status, absl::ZeroDuration());
    }
    return status;
  }
  void OnEnd(const call::Incoming& incoming, const absl::Status& status, int64_t now_ns) override {
    End(incoming, ServerContext(incoming), interceptors_.size(), status,
        absl::Nanoseconds(now_ns - incoming.received_ns));
  }

 private:
  // Runs user code. If it throws, logs the exception, and returns its status.
  template <typename Code>
  static absl::Status Guard(std::string_view who, const call::Incoming& incoming, Code code) {
    try {
      return code();
    } catch (...) {
      return incoming.engine->Thrown(who, incoming);
    }
  }
  void End(const call::Incoming& incoming, const ServerContext& context, size_t count,
           const absl::Status& status, absl::Duration took) const {
    while (count-- > 0) {
      // The call has its status already: an exception is only logged.
      (void)Guard("interceptor", incoming, [&] {
        interceptors_[count]->OnEnd(context, status, took);
        return absl::OkStatus();
      });
    }
  }

  const decltype(ServerOptions::authorize) authorize_;
  const decltype(ServerOptions::interceptors) interceptors_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVER_CHAIN_H_
