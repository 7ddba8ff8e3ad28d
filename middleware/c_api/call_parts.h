// SPDX-License-Identifier: Apache-2.0
//
// CallParts: method, request, context and reply of a call or stream of the C API.
//
// Ownership     The handle of the call or stream, or the stack of a synchronous call. It must not move after Set().
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

// Arguments of a C function.
struct CallArguments {
  const char* function;  // its name, for errors
  const char* method;
  const void* request;
  size_t request_bytes;
  const sluice_call_options* options;
};

// Checks an argument. INVALID_ARGUMENT: `data` is NULL and `bytes` is not 0, or `bytes` is over 2 GiB. `function` and `argument`:
// names as in sluice.h.
absl::Status CheckBytes(const char* function, const char* argument, const void* data, size_t bytes);

class CallParts {
 public:
  // kCopies: request and attachment are copied, because the call outlives the C function. kReferences: they are not copied.
  enum class Keep : bool { kReferences, kCopies };

  // Sets all parts but the reply. INVALID_ARGUMENT: an argument is not accepted. RESOURCE_EXHAUSTED: too much metadata.
  absl::Status Set(const CallArguments& arguments, const ChannelCore& core, call::Streams streams,
                   Keep keep);

  const call::Method& method() const { return *method_; }
  const RawMessage& request() const { return *request_; }
  CallContext& context() { return *context_; }
  RawMessage* reply() { return &reply_; }

  // Returns the reply with its metadata and attachment. The caller owns it. Call once, after the call has ended with OK.
  sluice_message* TakeReply();
  // Returns a copy of `status` with the metadata of the error. The caller owns it. nullptr: OK.
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
