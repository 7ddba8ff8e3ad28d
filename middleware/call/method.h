// SPDX-License-Identifier: Apache-2.0
//
// Method: name, number and shape of a method. Incoming: a request at a server. MethodHandler: a method that a server runs. Generated code
// fills Method and MethodHandler; see middleware/codegen.
//
// Threads       Any: constants.
#ifndef SLUICE_MIDDLEWARE_CALL_METHOD_H_
#define SLUICE_MIDDLEWARE_CALL_METHOD_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/call/buffer.h"
#include "middleware/call/message_codec.h"
#include "middleware/frame/frame.h"
#include "middleware/frame/method_id.h"

namespace sluice::call {

class ServerCall;
class ServerEngine;

inline constexpr int64_t kNoDeadlineNs = INT64_MAX;

// ErrorDetail::operation of the error for an unknown method. The client adds the name of the method to that error.
inline constexpr char kDispatch[] = "dispatch";

// Sides that send more than one message. The values are the flags of a request.
enum class Streams : uint16_t {
  kNobody = 0,
  kClient = frame::kFlagClientStreams,
  kServer = frame::kFlagServerStreams,
  kBoth = frame::kFlagClientStreams | frame::kFlagServerStreams,
};

struct Method {
  // A codec other than kAnyMessage takes messages of one type only: call the method with messages of that type.
  constexpr explicit Method(const char* name, Streams streaming = Streams::kNobody,
                            bool repeatable = false, const MessageCodec* of_request = &kAnyMessage,
                            const MessageCodec* of_reply = &kAnyMessage)
      : full_name(name),
        id(frame::MethodId(name)),
        streams(streaming),
        idempotent(repeatable),
        request_codec(of_request),
        reply_codec(of_reply) {}

  bool client_streams() const { return static_cast<uint16_t>(streams) & frame::kFlagClientStreams; }
  bool server_streams() const { return static_cast<uint16_t>(streams) & frame::kFlagServerStreams; }

  const char* full_name;  // "/package.Service/Method", of static lifetime
  uint64_t id;
  Streams streams;
  // Running the method twice has the same effect as running it once, so calls may be retried (retry.h).
  bool idempotent;
  // Codecs for a request or reply that is a single message. Messages of streams use protobuf.
  const MessageCodec* request_codec;
  const MessageCodec* reply_codec;
};

// Parts of a reply beside its message.
struct Beside {
  bool empty() const { return metadata.empty() && attachment.empty(); }
  void Clear() {
    if (!metadata.empty()) metadata.clear();
    if (!attachment.empty()) attachment = {};
  }
  std::string metadata;  // serialised
  Buffer attachment;
};

// A request at a server. Valid while the handler runs.
struct Incoming {
  const Method* method;
  const std::string* peer;    // address of the caller
  const std::string* tenant;  // tenant of the caller; empty: no tenants here
  int64_t deadline_ns;        // in the server's clock; kNoDeadlineNs: none
  int64_t received_ns;        // time of the pass that received the request; in the same clock
  std::string_view metadata;  // serialised; most calls have none
  Beside* reply = nullptr;    // sent with the reply's message
  std::span<const std::byte> attachment;  // most calls have none
  uint64_t span = 0;  // random number that identifies a call with metadata; 0: no metadata
  ServerEngine* engine = nullptr;  // that runs the request
  endpoint::PeerId from;           // the caller
};

// A method of a registered service. `run`: for a method whose reply is complete when the handler returns. `start`: for all others.
struct MethodHandler {
  using Run = absl::Status (*)(void* service, const Incoming& incoming,
                               const google::protobuf::MessageLite& request,
                               google::protobuf::MessageLite* reply);

  const Method* method = nullptr;
  void* service = nullptr;  // outlives the server
  Run run = nullptr;
  // Starts a call, which the callee owns until it calls Finish().
  std::function<void(ServerCall* call)> start;
  // With `run`: messages that all calls use in turn, so that their memory is allocated once. Handlers run one after another, on the
  // polling thread. With `start`: prototypes from which the engine creates messages.
  std::unique_ptr<google::protobuf::MessageLite> request;
  std::unique_ptr<google::protobuf::MessageLite> reply;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_METHOD_H_
