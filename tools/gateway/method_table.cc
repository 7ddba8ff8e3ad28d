// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/method_table.h"

#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/reflection.sluice.h"
#include "transport/base/error.h"

namespace sluice::gateway {
namespace {

using google::protobuf::FileDescriptorProto;
using google::protobuf::MethodDescriptorProto;

constexpr char kGrpcHealth[] = "/grpc.health.v1.Health/";
constexpr char kHealth[] = "/sluice.health.v1.Health/";

// "package.Service" of "/package.Service/Method".
std::optional<std::string> ServiceOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (path.empty() || path[0] != '/' || slash < 2 || slash + 1 == path.size()) return std::nullopt;
  return path.substr(1, slash - 1);
}

call::Streams StreamsOf(const MethodDescriptorProto& method) {
  return static_cast<call::Streams>((method.client_streaming() ? frame::kFlagClientStreams : 0) |
                                    (method.server_streaming() ? frame::kFlagServerStreams : 0));
}

bool IsIdempotent(const MethodDescriptorProto& method) {
  return method.options().idempotency_level() !=
         google::protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN;
}

}  // namespace

struct MethodTable::Question {
  explicit Question(const std::string& name) : context(kTimeout) { request.set_service(name); }
  CallContext context;
  reflection::v1::FilesOfRequest request;
  reflection::v1::FilesOfResponse reply;
};

void MethodTable::Add(const FileDescriptorProto& file) {
  const std::lock_guard lock(mutex_);
  AddLocked(file, /*is_given=*/true);
}

void MethodTable::AddLocked(const FileDescriptorProto& file, bool is_given) {
  for (const auto& service : file.service()) {
    const std::string prefix =
        absl::StrCat("/", file.package(), file.package().empty() ? "" : ".", service.name(), "/");
    for (const MethodDescriptorProto& method : service.method()) {
      const std::string path = prefix + method.name();
      const auto before = known_.find(path);
      if (before != known_.end() && before->second.is_given) continue;
      const Method* found = nullptr;
      for (const Entry& entry : entries_) {
        const bool same = entry.name == path && entry.method.streams == StreamsOf(method) &&
                          entry.method.idempotent == IsIdempotent(method);
        if (same) found = &entry.method;
      }
      if (found == nullptr) {
        found = &entries_.emplace_back(path, StreamsOf(method), IsIdempotent(method)).method;
      }
      known_[path] = {found, is_given};
    }
  }
}

// The methods of gRPC's name lead to those of Sluice's.
void MethodTable::AddHealthLocked(absl::StatusCode answer) {
  if (answer != absl::StatusCode::kNotFound && answer != absl::StatusCode::kUnimplemented) return;
  FileDescriptorProto file;
  file.set_package("sluice.health.v1");
  auto* const service = file.add_service();
  service->set_name("Health");
  service->add_method()->set_name("Check");
  MethodDescriptorProto* const watch = service->add_method();
  watch->set_name("Watch");
  watch->set_server_streaming(true);
  AddLocked(file, /*is_given=*/false);
  for (const char* name : {"Check", "Watch"}) {
    known_[absl::StrCat(kGrpcHealth, name)] = known_[absl::StrCat(kHealth, name)];
  }
}

void MethodTable::Find(const std::string& path, Found done) {
  const std::optional<std::string> service = ServiceOf(path);
  if (!service.has_value()) {
    return std::move(done)(
        base::Error(absl::StatusCode::kUnimplemented,
                    absl::StrCat("\"", path.substr(0, 200), "\" is not a method"),
                    {.layer = "gateway",
                     .operation = "find the method",
                     .cause = "it is not of the form /package.Service/Method",
                     .remedy = "check the name"}));
  }
  bool is_first = false;
  {
    std::unique_lock lock(mutex_);
    const auto found = known_.find(path);
    if (found != known_.end()) {
      const Method* const method = found->second.method;
      lock.unlock();
      return std::move(done)(method);
    }
    std::vector<Waiting>& waiting = waiting_[*service];
    is_first = waiting.empty();
    waiting.push_back({path, std::move(done)});
  }
  if (is_first) Ask(*service);
}

void MethodTable::Ask(const std::string& service) {
  auto question = std::make_unique<Question>(service);
  Question* const pending = question.get();
  const absl::Status started = reflection::v1::ReflectionClient(channel_).StartFilesOf(
      pending->context, pending->request, &pending->reply,
      [this, pending](const absl::Status& status) {
        const std::unique_ptr<Question> owned(pending);
        OnAnswer(*owned, status);
      });
  if (started.ok()) {
    (void)question.release();  // the callback's
  } else {
    OnAnswer(*question, started);
  }
}

void MethodTable::OnAnswer(const Question& question, const absl::Status& status) {
  std::vector<std::pair<Found, absl::StatusOr<const Method*>>> results;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& bytes : question.reply.files()) {
      FileDescriptorProto file;
      if (file.ParseFromString(bytes)) AddLocked(file, /*is_given=*/false);
    }
    const std::string& service = question.request.service();
    if (absl::StrCat("/", service, "/") == kGrpcHealth) AddHealthLocked(status.code());
    const auto waiting = waiting_.find(service);
    for (Waiting& one : waiting->second) {
      results.emplace_back(std::move(one.done), ResultLocked(one.path, status));
    }
    waiting_.erase(waiting);
  }
  for (auto& [done, result] : results) std::move(done)(std::move(result));
}

absl::StatusOr<const Method*> MethodTable::ResultLocked(const std::string& path,
                                                        const absl::Status& answer) const {
  const auto found = known_.find(path);
  if (found != known_.end()) return found->second.method;
  if (absl::IsUnimplemented(answer)) {
    return base::Error(absl::StatusCode::kUnimplemented, absl::StrCat("no descriptor of ", path),
                       {.layer = "gateway",
                        .peer = channel_->server(),
                        .operation = "find the method",
                        .cause = "the Sluice server has no reflection service",
                        .remedy = "register a ReflectionService there, or give the gateway "
                                  "--descriptors"});
  }
  if (!answer.ok() && !absl::IsNotFound(answer)) return answer;
  return base::Error(absl::StatusCode::kUnimplemented, absl::StrCat("the server has no ", path),
                     {.layer = "gateway",
                      .peer = channel_->server(),
                      .operation = "find the method",
                      .cause = answer.ok() ? "its reflection service lists the service without it"
                                           : "its reflection service does not list the service",
                      .remedy = "check the name: sluice_call list shows the services"});
}

void MethodTable::Forget(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(path);
  if (found != known_.end() && !found->second.is_given) known_.erase(found);
}

}  // namespace sluice::gateway
