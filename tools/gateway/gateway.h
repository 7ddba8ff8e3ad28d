// SPDX-License-Identifier: Apache-2.0
//
// Gateway: a gRPC port in front of a Sluice server.
//
//   sluice::gateway::Gateway::Options options;
//   options.listen = "127.0.0.1:50051";
//   auto gateway = sluice::gateway::Gateway::Start(channel, options);
//   if (!gateway.ok()) return gateway.status();
//   …
//   (*gateway)->Drain(absl::Seconds(10));
//
// Purpose       Passes each gRPC call on to the channel, by the name of its method (gateway_call.h), and answers gRPC's
//               reflection protocol (reflection_bridge.h).
// Ownership     The user owns it. It holds a reference to the channel.
// Threads       Start(), Drain() and the destructor: one at a time. Calls run on threads of gRPC and on the thread that drives the
//               channel.
// Errors        Start(): INVALID_ARGUMENT (an option), UNAVAILABLE (gRPC cannot listen at the address).
// End           Drain(), or the destructor, which drains with a timeout of zero.
#ifndef SLUICE_TOOLS_GATEWAY_GATEWAY_H_
#define SLUICE_TOOLS_GATEWAY_GATEWAY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/channel.h"

namespace sluice::gateway {

class Gateway {
 public:
  struct Options {
    // "host:port" of the gRPC port. Port 0: any free port.
    std::string listen = "127.0.0.1:50051";
    // Maximum number of open calls. Further calls end with RESOURCE_EXHAUSTED. Range: 1 to 1,000,000. The channel's
    // max_outstanding_calls has to be larger.
    uint32_t max_calls = 1024;
    // Maximum size in bytes of a message in either direction. A longer message ends its call with RESOURCE_EXHAUSTED. Range:
    // 1024 to 1 GiB. The default is gRPC's.
    uint32_t max_message_bytes = 4u << 20;
    // Time without data from a client after which the gateway sends it a ping, and time that the client has to answer. A client
    // that does not answer is disconnected, and its handlers are stopped. Range: 1 ms to 1 h. Default: 30 s.
    absl::Duration client_keepalive = absl::Seconds(30);
    // Descriptors of methods, for a server without a reflection service. Default: none.
    google::protobuf::FileDescriptorSet descriptors;
    // Contents of PEM files, for TLS. Certificate and key: both or none. `client_authority`: certificates of clients are
    // required, and signed by it. Default: no encryption.
    std::string tls_certificate;
    std::string tls_key;
    std::string tls_client_authority;
  };

  static absl::StatusOr<std::unique_ptr<Gateway>> Start(std::shared_ptr<Channel> channel,
                                                        const Options& options);
  ~Gateway();
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  uint16_t port() const { return port_; }

  // Accepts no more calls, ends watches of health with UNAVAILABLE, and waits for the other calls for at most `timeout` (clamped to
  // 0 to 100 years). Then it ends them with UNAVAILABLE, and stops their handlers. gRPC cancels a call that has not ended five
  // seconds later, because its client neither sends its request nor reads, say. Blocks until the end.
  void Drain(absl::Duration timeout);

 private:
  class Service;

  Gateway();

  std::unique_ptr<Service> service_;
  uint16_t port_ = 0;
};

}  // namespace sluice::gateway

#endif  // SLUICE_TOOLS_GATEWAY_GATEWAY_H_
