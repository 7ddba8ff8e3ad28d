// SPDX-License-Identifier: Apache-2.0
//
// ConnectRequest: a request to connect whose hello is being checked. Private to transport/endpoint; used by handshakes.cc.
//
// Ownership     Passed by value or reference; nothing keeps it after the request was answered.
// Threads       The polling thread.
#ifndef SLUICE_TRANSPORT_ENDPOINT_CONNECT_REQUEST_H_
#define SLUICE_TRANSPORT_ENDPOINT_CONNECT_REQUEST_H_

#include <string>

#include "transport/cm/connection_manager.h"
#include "transport/peer/handshake.h"

namespace sluice::endpoint {

struct ConnectRequest {
  cm::ConnectionId connection;
  peer::Greeting greeting;
  peer::HelloMessage hello;
  cm::PathInfo path;
  std::string from;
  std::string source;    // source of `from` (peer::SourceOf)
  bool charged = false;  // took a token of its source
};

}  // namespace sluice::endpoint

#endif  // SLUICE_TRANSPORT_ENDPOINT_CONNECT_REQUEST_H_
