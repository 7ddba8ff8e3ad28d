// SPDX-License-Identifier: Apache-2.0
//
// ClientChain: runs a channel's interceptors around its calls.
//
// Ownership     The channel owns it.
// Threads       Any, several at a time.
#ifndef SLUICE_MIDDLEWARE_API_CLIENT_CHAIN_H_
#define SLUICE_MIDDLEWARE_API_CLIENT_CHAIN_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "middleware/api/interceptor.h"
#include "middleware/call/call_table.h"
#include "middleware/call/exceptions.h"
#include "transport/base/clock.h"
#include "transport/base/log.h"

namespace sluice {

class ClientChain {
 public:
  // `log`: may be nullptr.
  ClientChain(std::vector<std::shared_ptr<ClientInterceptor>> interceptors, base::Clock* clock,
              base::LogSink* log)
      : interceptors_(std::move(interceptors)), clock_(clock), exceptions_(log, clock) {}
  bool empty() const { return interceptors_.empty(); }

  // `start` starts the given call. If it returns OK, `done` runs once; otherwise `done` does not
  // run. The interceptors get OnEnd() before the caller's `done` runs, or before this function
  // returns an error.
  absl::Status Start(call::CallSpec spec, const std::string& server,
                     absl::FunctionRef<absl::Status(const call::CallSpec&)> start);
  // `run` makes the call, and returns when the call has ended.
  absl::Status Run(call::CallSpec spec, const std::string& server,
                   absl::FunctionRef<absl::Status(const call::CallSpec&)> run);

 private:
  struct Seen;

  absl::Status Begin(Seen* seen, call::CallSpec* spec);
  // Call in a catch block only.
  absl::Status Thrown(const ClientCall& call) const {
    return exceptions_.Take(absl::StrCat("interceptor of ", call.method()), call.method(),
                            call.server());
  }
  void End(const Seen& seen, size_t count, const absl::Status& status) const;
  static void OnDone(void* argument, const absl::Status& status);

  const std::vector<std::shared_ptr<ClientInterceptor>> interceptors_;
  base::Clock* const clock_;
  mutable call::Exceptions exceptions_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_CLIENT_CHAIN_H_
