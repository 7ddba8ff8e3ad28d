// SPDX-License-Identifier: Apache-2.0
//
// Service: what a Server runs. Generated code derives EchoServiceBase from it; a user derives from that:
//
//   class EchoImpl final : public EchoServiceBase {
//     absl::Status Say(sluice::ServerContext& context, const SayRequest& request, SayReply* reply) override {
//       reply->set_payload(request.payload());
//       return absl::OkStatus();
//     }
//   };
//
// Handlers run one after another on the server's polling thread: one that blocks, blocks all callers. Request and
// reply are valid while the handler runs. An exception that leaves a handler ends the process.
#ifndef SLUICE_MIDDLEWARE_API_SERVICE_H_
#define SLUICE_MIDDLEWARE_API_SERVICE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/server_context.h"
#include "middleware/call/method.h"

namespace sluice {

using call::Method;

// Collects the methods of a service; used by generated code.
class MethodBinder {
 public:
  // `method` and `service` outlive the server.
  template <typename Service, typename Request, typename Reply,
            absl::Status (Service::*kFunction)(ServerContext&, const Request&, Reply*)>
  void Bind(const Method& method, Service* service) {
    call::MethodHandler handler;
    handler.method = &method;
    handler.service = service;
    handler.run = [](void* self, const call::Incoming& incoming,
                     const google::protobuf::MessageLite& request,
                     google::protobuf::MessageLite* reply) {
      ServerContext context(incoming);
      return (static_cast<Service*>(self)->*kFunction)(
          context, static_cast<const Request&>(request), static_cast<Reply*>(reply));
    };
    handler.request = std::make_unique<Request>();
    handler.reply = std::make_unique<Reply>();
    handlers_.push_back(std::move(handler));
  }

  std::vector<call::MethodHandler> TakeHandlers() { return std::move(handlers_); }

 private:
  std::vector<call::MethodHandler> handlers_;
};

class Service {
 public:
  virtual ~Service() = default;
  // "package.Service".
  virtual const char* name() const = 0;
  virtual void Bind(MethodBinder& binder) = 0;
};

// What a method that is not overridden answers.
absl::Status NotOverridden(const Method& method);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVICE_H_
