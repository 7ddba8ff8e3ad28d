// SPDX-License-Identifier: Apache-2.0
//
// ServerEngine: errors of requests that no handler can serve, or whose handler throws. They name no peer: the client adds its address of
// the server.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "middleware/call/server_engine.h"
#include "transport/base/error.h"

namespace sluice::call {

absl::Status ServerEngine::Malformed(const Method& method, size_t bytes,
                                     const google::protobuf::MessageLite& message) const {
  return base::Error(absl::StatusCode::kInvalidArgument,
                     absl::StrCat("request of ", method.full_name, " can't be parsed"),
                     {.layer = "call",
                      .operation = method.full_name,
                      .cause = absl::StrCat(bytes, " bytes are not a ", message.GetTypeName()),
                      .remedy = "build client and server from the same .proto",
                      .retry_safe = true});
}

absl::Status ServerEngine::OtherShape(const Method& method) const {
  return base::Error(
      absl::StatusCode::kUnimplemented,
      absl::StrCat(method.full_name, " is not called as it is declared"),
      {.layer = "call",
       .operation = method.full_name,
       .cause = absl::StrCat("at this server the client ",
                             method.client_streams() ? "streams" : "sends one message",
                             " and the server ", method.server_streams() ? "streams" : "sends one"),
       .remedy = "build client and server from the same .proto",
       .retry_safe = true});
}

absl::Status ServerEngine::UnknownMethod(uint64_t method_id) const {
  std::vector<std::string> names;
  for (const auto& [number, entry] : methods_) names.push_back(entry->handler.method->full_name);
  std::sort(names.begin(), names.end());
  std::string known = names.empty() ? "none" : "";
  constexpr size_t kMaxNamed = 8;
  for (size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) {
    absl::StrAppend(&known, i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMaxNamed)
    absl::StrAppend(&known, ", and ", names.size() - kMaxNamed, " more");
  return base::Error(absl::StatusCode::kUnimplemented,
                     absl::StrFormat("no method has the number %016x", method_id),
                     {.layer = "call",
                      .operation = kDispatch,
                      .cause = absl::StrCat("the server's methods are: ", known),
                      .remedy = "register the service, or build both sides from the same .proto",
                      .retry_safe = true});
}

absl::Status ServerEngine::Thrown(std::string_view who, const Incoming& incoming) {
  const char* const method = incoming.method->full_name;
  const std::string whose = absl::StrCat(std::string(who), " of ", method);
  (void)exceptions_.Take(whose, method, *incoming.peer);  // the log names the caller
  return StatusOfException(whose, method, {});
}

void ServerEngine::RefuseUnknown(endpoint::PeerId id, Peer* peer, const frame::Header& request) {
  if (!drain_.started()) {
    ++counters_.unknown_methods;
    return Refuse(id, peer, request.call_id, nullptr, UnknownMethod(request.method_id));
  }
  ++counters_.refused_draining;
  Refuse(id, peer, request.call_id, nullptr,
         base::Error(absl::StatusCode::kUnavailable, "server is draining",
                     {.layer = "call",
                      .operation = "dispatch",
                      .cause = "the server is shutting down and accepts no new calls",
                      .remedy = "call another server",
                      .retry_safe = true}));
}

void ServerEngine::RefuseMalformed(endpoint::PeerId id, Peer* peer, const frame::Header& request,
                                   const Entry& entry, const Incoming& incoming, size_t bytes) {
  RefuseLetIn(id, peer, request.call_id, entry.stats, incoming,
              Malformed(*entry.handler.method, bytes, *entry.handler.request));
}

}  // namespace sluice::call
