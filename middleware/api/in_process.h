// SPDX-License-Identifier: Apache-2.0
//
// InProcess: a server and its clients in one process, without device and sockets, for tests of
// services.
//
//   auto world = sluice::InProcess::Start({&my_service});
//   MyServiceClient client(*(*world)->NewChannel());
//   …
//   (*world)->KillServer();     // as if its process had died
//
// Purpose       Uses the same Server, Channel and generated code as between processes, with
//               threads, deadlines, streams and limits. Only the transport differs
//               (middleware/local); it is slower than shared memory.
// Ownership     The user owns it. Services outlive it. Destroy channels first.
// Threads       As Server and Channel.
#ifndef SLUICE_MIDDLEWARE_API_IN_PROCESS_H_
#define SLUICE_MIDDLEWARE_API_IN_PROCESS_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "middleware/api/channel.h"
#include "middleware/api/options.h"
#include "middleware/api/server.h"
#include "middleware/api/service.h"

namespace sluice {

class InProcess {
 public:
  // Starts a server with `services`. The options for device and authentication have no effect.
  static absl::StatusOr<std::unique_ptr<InProcess>> Start(const std::vector<Service*>& services,
                                                          const ServerOptions& options = {},
                                                          const RegisterOptions& registering = {});
  ~InProcess();
  InProcess(const InProcess&) = delete;
  InProcess& operator=(const InProcess&) = delete;

  absl::StatusOr<std::shared_ptr<Channel>> NewChannel(const ChannelOptions& options = {});
  Server& server();
  // Simulates the death of the server process: calls end with UNAVAILABLE. The server cannot be
  // restarted.
  void KillServer();

 private:
  struct Parts;
  explicit InProcess(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_IN_PROCESS_H_
