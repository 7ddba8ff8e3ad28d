// SPDX-License-Identifier: Apache-2.0
//
// BesideChat: ChatService, with what goes beside messages: it sends attachments back, and metadata with an error.
#ifndef SLUICE_TESTS_MIDDLEWARE_C_API_BESIDE_CHAT_H_
#define SLUICE_TESTS_MIDDLEWARE_C_API_BESIDE_CHAT_H_

#include <string>
#include <utility>

#include "tests/middleware/api/chat_service.h"

namespace sluice::testing_support {

class BesideChat final : public ChatCoServiceBase {
 public:
  Task<absl::Status> Say(ServerContext& context, const Line& request, Line* reply) override {
    if (!context.attachment().empty()) return SendBack(context);
    if (request.text() == "refuse") return Refuse(context);
    return chat.Say(context, request, reply);
  }
  Task<absl::Status> Tail(ServerContext& context, const Line& request,
                          ServerWriter<Line> writer) override {
    return chat.Tail(context, request, std::move(writer));
  }
  Task<absl::Status> Sum(ServerContext& context, ServerReader<Line> reader, Line* reply) override {
    return chat.Sum(context, std::move(reader), reply);
  }
  Task<absl::Status> Talk(ServerContext& context, ServerReader<Line> reader,
                          ServerWriter<Line> writer) override {
    return chat.Talk(context, std::move(reader), std::move(writer));
  }

  ChatService chat;

 private:
  static Task<absl::Status> SendBack(ServerContext& context) {
    const auto* bytes = reinterpret_cast<const char*>(context.attachment().data());
    context.set_reply_attachment(std::string(bytes, context.attachment().size()));
    co_return absl::OkStatus();
  }
  static Task<absl::Status> Refuse(ServerContext& context) {
    EXPECT_TRUE(context.AddReplyMetadata("reason", "tired").ok());
    co_return absl::AbortedError("not today");
  }
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_MIDDLEWARE_C_API_BESIDE_CHAT_H_
