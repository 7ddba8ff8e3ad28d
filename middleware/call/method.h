// SPDX-License-Identifier: Apache-2.0
//
// Method: a method's name and number; Incoming and MethodHandler: what a server needs to run one.
// Generated code fills all three; see middleware/codegen.
#ifndef SLUICE_MIDDLEWARE_CALL_METHOD_H_
#define SLUICE_MIDDLEWARE_CALL_METHOD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/frame/method_id.h"

namespace sluice::call {

inline constexpr int64_t kNoDeadlineNs = INT64_MAX;

// ErrorDetail::operation of "there is no such method", which the client completes with the name.
inline constexpr char kDispatch[] = "dispatch";

struct Method {
  constexpr explicit Method(const char* name) : full_name(name), id(frame::MethodId(name)) {}

  const char* full_name;  // "/package.Service/Method", of static lifetime
  uint64_t id;
};

// A request on its way through a server. Valid while the handler runs.
struct Incoming {
  const Method* method;
  const std::string* peer;    // address of the caller
  const std::string* tenant;  // whose it is; empty: there are none
  int64_t deadline_ns;        // of the server's clock; kNoDeadlineNs: none
  int64_t received_ns;        // when this poll pass began; the same clock
};

// One method of one registered service. The messages are reused from call to call, so that their
// memory is allocated once: handlers run one after another, on the polling thread.
struct MethodHandler {
  using Run = absl::Status (*)(void* service, const Incoming& incoming,
                               const google::protobuf::MessageLite& request,
                               google::protobuf::MessageLite* reply);

  const Method* method = nullptr;
  void* service = nullptr;  // outlives the server
  Run run = nullptr;
  std::unique_ptr<google::protobuf::MessageLite> request;
  std::unique_ptr<google::protobuf::MessageLite> reply;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_METHOD_H_
