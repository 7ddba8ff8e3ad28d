// SPDX-License-Identifier: Apache-2.0
//
// CallParts: what a call or stream of the C API has from its caller: method, request, context; and its reply.
//
// Ownership     The handle of the call or stream, or the stack of a synchronous call. At a fixed address from Set() on.
// Threads       As the call.
#ifndef SLUICE_MIDDLEWARE_C_API_CALL_PARTS_H_
#define SLUICE_MIDDLEWARE_C_API_CALL_PARTS_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "middleware/api/call_context.h"
#include "middleware/api/raw_message.h"
#include "middleware/c_api/channel_core.h"
#include "middleware/c_api/objects.h"
#include "middleware/c_api/sluice.h"
#include "middleware/call/method.h"

namespace sluice::c_api {

// Arguments as the C functions have them.
struct CallArguments {
  const char* function;  // its name, for errors
  const char* method;
  const void* request;
  size_t request_bytes;
  const sluice_call_options* options;
};

// INVALID_ARGUMENT: `data` is NULL with a size, or has over 2 GiB. `function` and `argument` as the header names them.
absl::Status CheckBytes(const char* function, const char* argument, const void* data, size_t bytes);

class CallParts {
 public:
  // Copies of request and attachment are kept if the call outlives the function.
  enum class Keep : bool { kReferences, kCopies };

  // INVALID_ARGUMENT: an argument is not accepted. RESOURCE_EXHAUSTED: too much metadata.
  absl::Status Set(const CallArguments& arguments, const ChannelCore& core, call::Streams streams,
                   Keep keep);

  const call::Method& method() const { return *method_; }
  const RawMessage& request() const { return *request_; }
  CallContext& context() { return *context_; }
  RawMessage* reply() { return &reply_; }

  // The reply with what came beside it. Once, after the call has ended with OK.
  sluice_message* TakeReply();
  // The status with the metadata of an error.
  sluice_status* StatusOf(const absl::Status& status);

 private:
  std::string name_;
  std::optional<call::Method> method_;
  std::string kept_request_;
  std::string kept_attachment_;
  std::optional<RawMessage> request_;
  std::optional<CallContext> context_;
  RawMessage reply_;
};

}  // namespace sluice::c_api

#endif  // SLUICE_MIDDLEWARE_C_API_CALL_PARTS_H_
