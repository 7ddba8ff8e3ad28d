// SPDX-License-Identifier: Apache-2.0
//
// The end of a peer that sends more than it was granted: docs/decisions/0046.
#include <string>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {

void EndpointImpl::EndFlood(Peer* peer, bool data) {
  const uint32_t most = data ? peer::ReceiveCredits::MostData(nominal_window_)
                             : peer::ReceiveCredits::MostControl(peer->remote_window);
  EndOffender(peer, "more than " + std::to_string(most) + (data ? "" : " control") +
                        " messages were here at one time; its window is " +
                        std::to_string(data ? nominal_window_ : peer->remote_window));
}

void EndpointImpl::EndOverdrawn(Peer* peer) {
  EndOffender(peer, "it has sent " + std::to_string(peer->receive.consumed()) +
                        " messages, and was granted " + std::to_string(peer->receive.limit()));
}

void EndpointImpl::EndOffender(Peer* peer, const std::string& cause) {
  ++counters_.over_credit;
  const absl::Status why =
      base::Error(absl::StatusCode::kUnavailable, "the peer sent more than it was granted",
                  {.layer = "endpoint",
                   .peer = peer->address(),
                   .operation = "receive",
                   .cause = cause,
                   .remedy = "run the same release of Sluice on both sides; a peer that does this "
                             "on purpose holds the secret: replace the secret"});
  log_.Say(base::Severity::kWarning, "credits exceeded", peer->address(),
           std::string(why.message()));
  const uint32_t tenant = peer->tenant;
  Fail(peer, why);
  RenewTenant(tenant);
}

}  // namespace sluice::endpoint
