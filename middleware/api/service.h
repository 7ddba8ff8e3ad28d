// SPDX-License-Identifier: Apache-2.0
//
// Service: base class of the services that a Server runs. Generated code derives EchoServiceBase
// from it; a user derives from that:
//
//   class EchoImpl final : public EchoServiceBase {
//     absl::Status Say(sluice::ServerContext& context, const SayRequest& request, SayReply* reply) override {
//       reply->set_payload(request.payload());
//       return absl::OkStatus();
//     }
//   };
//
// Ownership     The user owns it. It outlives the server. Request and reply are valid until the
//               handler has ended.
// Threads       Plain functions run one after another on the server's polling thread: a function
//               that blocks delays all callers. With RegisterOptions::executor they run on threads
//               of the user, several at a time. EchoCoServiceBase has coroutines (task.h): they run
//               on the polling thread, and others run while one is suspended. Streaming methods are
//               coroutines in both. A coroutine that must block moves to an executor (run_on.h).
// Exceptions    If a handler throws, its call ends with UNKNOWN and the exception's text, cut at
//               256 bytes. The server logs the exception, and continues.
#ifndef SLUICE_MIDDLEWARE_API_SERVICE_H_
#define SLUICE_MIDDLEWARE_API_SERVICE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message_lite.h"
#include "middleware/api/deferred.h"
#include "middleware/api/executor_queue.h"
#include "middleware/api/server_context.h"
#include "middleware/api/task.h"
#include "middleware/call/method.h"
#include "middleware/call/plain_message.h"
#include "middleware/call/server_call.h"

namespace sluice {

using call::Method;
using call::Streams;

// Collects the methods of a service. Used by generated code. `method` and `service` outlive the
// server.
class MethodBinder {
 public:
  // `queue`: queue of the executor that runs plain functions; nullptr: they run on the polling
  // thread.
  explicit MethodBinder(std::shared_ptr<ExecutorQueue> queue = nullptr)
      : queue_(std::move(queue)) {}

  // Binds a plain function.
  template <typename Service, typename Request, typename Reply,
            absl::Status (Service::*kFunction)(ServerContext&, const Request&, Reply*)>
  void Bind(const Method& method, Service* service) {
    call::MethodHandler& handler = Add<Request, Reply>(method, service);
    handler.run = [](void* self, const call::Incoming& incoming,
                     const google::protobuf::MessageLite& request,
                     google::protobuf::MessageLite* reply) {
      ServerContext context(incoming);
      return (static_cast<Service*>(self)->*kFunction)(
          context, static_cast<const Request&>(request), static_cast<Reply*>(reply));
    };
    if (queue_ == nullptr) return;
    handler.start = [service, queue = queue_](call::ServerCall* call) {
      const auto work = [service, call](ServerContext& context) {
        return (service->*kFunction)(context, static_cast<const Request&>(call->request()),
                                     static_cast<Reply*>(call->reply()));
      };
      internal::ExecutorCall<decltype(work)>::Start(call, queue, work);
    };
  }

  // Bind a coroutine: unary, client streaming, server streaming, bidirectional.
  template <typename Service, typename Request, typename Reply,
            Task<absl::Status> (Service::*kFunction)(ServerContext&, const Request&, Reply*)>
  void BindTask(const Method& method, Service* service) {
    AddTask<Request, Reply>(method, service, [service](internal::TaskContext& context) {
      return (service->*kFunction)(context, RequestOf<Request>(context), ReplyOf<Reply>(context));
    });
  }
  template <typename Service, typename Request, typename Reply,
            Task<absl::Status> (Service::*kFunction)(ServerContext&, ServerReader<Request>, Reply*)>
  void BindTask(const Method& method, Service* service) {
    AddTask<Request, Reply>(method, service, [service](internal::TaskContext& context) {
      return (service->*kFunction)(context, ServerReader<Request>(&context),
                                   ReplyOf<Reply>(context));
    });
  }
  template <typename Service, typename Request, typename Reply,
            Task<absl::Status> (Service::*kFunction)(ServerContext&, const Request&,
                                                     ServerWriter<Reply>)>
  void BindTask(const Method& method, Service* service) {
    AddTask<Request, Reply>(method, service, [service](internal::TaskContext& context) {
      return (service->*kFunction)(context, RequestOf<Request>(context),
                                   ServerWriter<Reply>(&context));
    });
  }
  template <typename Service, typename Request, typename Reply,
            Task<absl::Status> (Service::*kFunction)(ServerContext&, ServerReader<Request>,
                                                     ServerWriter<Reply>)>
  void BindTask(const Method& method, Service* service) {
    AddTask<Request, Reply>(method, service, [service](internal::TaskContext& context) {
      return (service->*kFunction)(context, ServerReader<Request>(&context),
                                   ServerWriter<Reply>(&context));
    });
  }

  std::vector<call::MethodHandler> TakeHandlers() { return std::move(handlers_); }

 private:
  template <typename Request, typename Reply>
  call::MethodHandler& Add(const Method& method, void* service) {
    call::MethodHandler& handler = handlers_.emplace_back();
    handler.method = &method;
    handler.service = service;
    handler.request = std::make_unique<Request>();
    handler.reply = std::make_unique<Reply>();
    return handler;
  }
  template <typename Request, typename Reply, typename Run>
  void AddTask(const Method& method, void* service, Run run) {
    Add<Request, Reply>(method, service).start = [run](call::ServerCall* call) {
      internal::StartHandler(call, run);
    };
  }
  template <typename Request>
  static const Request& RequestOf(internal::TaskContext& context) {
    return static_cast<const Request&>(context.call()->request());
  }
  template <typename Reply>
  static Reply* ReplyOf(internal::TaskContext& context) {
    return static_cast<Reply*>(context.call()->reply());
  }

  const std::shared_ptr<ExecutorQueue> queue_;
  std::vector<call::MethodHandler> handlers_;
};

class Service {
 public:
  virtual ~Service() = default;
  // "package.Service".
  virtual const char* name() const = 0;
  virtual void Bind(MethodBinder& binder) = 0;
  // Called once when the server begins to drain, before the server refuses calls, on the thread
  // that calls Server::Drain() or BeginDrain().
  virtual void OnDrain() {}
};

// Status of a method that is not overridden.
absl::Status NotOverridden(const Method& method);
Task<absl::Status> NotOverriddenTask(const Method& method);

}  // namespace sluice

#endif  // SLUICE_MIDDLEWARE_API_SERVICE_H_
