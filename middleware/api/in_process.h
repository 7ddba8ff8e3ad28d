// SPDX-License-Identifier: Apache-2.0
//
// InProcess: a server and its clients in one process, with no device and no sockets: for tests of services.
//
//   auto world = sluice::InProcess::Start({&my_service});
//   MyServiceClient client(*(*world)->NewChannel());
//   …
//   (*world)->KillServer();     // as if its process had died
//
// What it is    The same Server, Channel and generated code as between processes, threads, deadlines, streams and limits included;
//               only what carries the messages is another thing (middleware/local), which is slower than shared memory.
// Thread-safety As Server and Channel.
// What ends it  The destructor; channels go first.
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
  // Services outlive it. Of the options, device and authentication are of no effect.
  static absl::StatusOr<std::unique_ptr<InProcess>> Start(const std::vector<Service*>& services,
                                                          const ServerOptions& options = {},
                                                          const RegisterOptions& registering = {});
  ~InProcess();
  InProcess(const InProcess&) = delete;
  InProcess& operator=(const InProcess&) = delete;

  absl::StatusOr<std::shared_ptr<Channel>> NewChannel(const ChannelOptions& options = {});
  Server& server();
  // Its callers see it die: UNAVAILABLE. It does not come back.
  void KillServer();

 private:
  struct Parts;
  explicit InProcess(std::unique_ptr<Parts> parts);

  const std::unique_ptr<Parts> parts_;
};

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_IN_PROCESS_H_
