// SPDX-License-Identifier: Apache-2.0
//
// Method: name, number and shape of a method. Incoming and MethodHandler: what a server needs to run a method. Generated code fills all
// three; see middleware/codegen.
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

// ErrorDetail::operation of "there is no such method", which the client completes with the name.
inline constexpr char kDispatch[] = "dispatch";

// Who sends more than one message. The values are the flags of a request.
enum class Streams : uint16_t {
  kNobody = 0,
  kClient = frame::kFlagClientStreams,
  kServer = frame::kFlagServerStreams,
  kBoth = frame::kFlagClientStreams | frame::kFlagServerStreams,
};

struct Method {
  // Codecs other than kAnyMessage are for one type: the method is then used with messages of these types only.
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
  bool
      idempotent;  // running it twice does what running it once does: it may be tried again (retry.h)
  // Of a request or reply that is one message; messages of streams are protobuf's.
  const MessageCodec* request_codec;
  const MessageCodec* reply_codec;
};

// What goes beside the message of a reply.
struct Beside {
  bool empty() const { return metadata.empty() && attachment.empty(); }
  void Clear() {
    if (!metadata.empty()) metadata.clear();
    if (!attachment.empty()) attachment = {};
  }
  std::string metadata;  // serialised
  Buffer attachment;
};

// A request on its way through a server. Valid while the handler runs.
struct Incoming {
  const Method* method;
  const std::string* peer;                // address of the caller
  const std::string* tenant;              // whose it is; empty: there are none
  int64_t deadline_ns;                    // of the server's clock; kNoDeadlineNs: none
  int64_t received_ns;                    // when this poll pass began; the same clock
  std::string_view metadata;              // serialised; most calls have none
  Beside* reply = nullptr;                // what stands here goes with it
  std::span<const std::byte> attachment;  // most calls have none
  uint64_t span = 0;                      // of a call with metadata: names it among all calls
  ServerEngine* engine = nullptr;         // which runs it,
  endpoint::PeerId from;                  // for this peer
};

// One method of one registered service: `run` for one that is answered before it returns, `start` for all others.
struct MethodHandler {
  using Run = absl::Status (*)(void* service, const Incoming& incoming,
                               const google::protobuf::MessageLite& request,
                               google::protobuf::MessageLite* reply);

  const Method* method = nullptr;
  void* service = nullptr;  // outlives the server
  Run run = nullptr;
  // The call is the callee's until it says Finish().
  std::function<void(ServerCall* call)> start;
  // With `run`: reused from call to call, so that their memory is allocated once: handlers run one after another, on
  // the polling thread. With `start`: what messages are made from.
  std::unique_ptr<google::protobuf::MessageLite> request;
  std::unique_ptr<google::protobuf::MessageLite> reply;
};

}  // namespace sluice::call

#endif  // SLUICE_MIDDLEWARE_CALL_METHOD_H_
