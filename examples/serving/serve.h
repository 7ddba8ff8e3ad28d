// SPDX-License-Identifier: Apache-2.0
//
// Serve(): what the example servers have in common: one service, with health and reflection beside it, until the program is to
// end; then drains. (echo_server writes it out.)
#ifndef SLUICE_EXAMPLES_SERVING_SERVE_H_
#define SLUICE_EXAMPLES_SERVING_SERVE_H_

#include <cstdio>
#include <string>

#include "absl/time/time.h"
#include "middleware/api/end_signals.h"
#include "middleware/api/server.h"
#include "middleware/services/health_service.h"
#include "middleware/services/reflection_service.h"

namespace sluice::examples {

inline absl::Status Serve(Service* service, const std::string& address, const std::string& device,
                          EndSignals& end, absl::Duration drain = absl::Seconds(2)) {
  ServerOptions options;
  options.device = device;
  auto server = Server::Create(options);
  if (!server.ok()) return server.status();
  HealthService health;
  ReflectionService reflection(server->get());  // for sluice_call
  for (Service* one :
       {service, static_cast<Service*>(&health), static_cast<Service*>(&reflection)}) {
    if (absl::Status status = (*server)->Register(one); !status.ok()) return status;
  }
  auto port = (*server)->Listen(address);
  if (!port.ok()) return port.status();
  std::printf("listening on %s:%u\n", address.substr(0, address.rfind(':')).c_str(), *port);
  std::fflush(stdout);
  end.Wait();
  return (*server)->Drain(drain);
}

}  // namespace sluice::examples

#endif  // SLUICE_EXAMPLES_SERVING_SERVE_H_
