// SPDX-License-Identifier: Apache-2.0
//
// EchoService: the whole of what a user writes on the server's side.
#ifndef SLUICE_EXAMPLES_ECHO_ECHO_SERVICE_H_
#define SLUICE_EXAMPLES_ECHO_ECHO_SERVICE_H_

#include "examples/echo/echo.sluice.h"

namespace sluice::examples::echo {

class EchoService final : public EchoServiceBase {
 public:
  absl::Status Say(ServerContext&, const SayRequest& request, SayReply* reply) override {
    reply->set_payload(request.payload());
    return absl::OkStatus();
  }
};

}  // namespace sluice::examples::echo

#endif  // SLUICE_EXAMPLES_ECHO_ECHO_SERVICE_H_
