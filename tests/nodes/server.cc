// SPDX-License-Identifier: Apache-2.0
#include "tests/nodes/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sluice::nodes {
namespace {

using hostile::kMs;

call::ServerEngineOptions EngineOptions(const Plan& plan, uint64_t seed, call::Gate* gate) {
  call::ServerEngineOptions options;
  options.gate = gate;
  options.max_message_bytes = plan.endpoint.max_message_bytes;
  options.max_waiting_replies_per_peer = plan.max_waiting_replies;
  options.trace_records = 64;
  options.span_seed = seed;
  return options;
}

endpoint::Options EndpointOptions(const Plan& plan, std::shared_ptr<cm::RequestDesk> desk) {
  endpoint::Options options = plan.endpoint;
  options.desk = std::move(desk);
  return options;
}

}  // namespace

Server::Server(softdc::sim::Simulation& simulation, uint32_t node, uint64_t seed, const Plan& plan,
               Ledger* ledger, std::shared_ptr<cm::RequestDesk> desk)
    : Process(simulation, node, seed, plan, ledger),
      gatekeeper_(ledger),
      engine_(std::make_unique<call::ServerEngine>(EngineOptions(plan, seed, &gatekeeper_), &clock_,
                                                   nullptr)) {
  Answer(kEcho);
  Answer(kRead);
  for (const call::Method* method : {&kHold, &kDown, &kUp, &kPipe}) Take(*method);
  Open(EndpointOptions(plan, std::move(desk)), engine_->handler());
  engine_->Attach(&valve_);
}

Server::~Server() { Close(); }

void Server::Listen() {
  const As as(simulation_, node_);
  const auto port = valve_.Listen("*", hostile::kPort);
  if (!port.ok()) ledger_->Break(port.status().ToString());
}

void Server::Answer(const call::Method& method) {
  call::MethodHandler handler;
  handler.method = &method;
  handler.service = this;
  handler.run = [](void* service, const call::Incoming& incoming,
                   const google::protobuf::MessageLite& request,
                   google::protobuf::MessageLite* reply) {
    auto* self = static_cast<Server*>(service);
    self->ledger_->Ran(LabelOf(incoming.metadata).serial, incoming.method->idempotent);
    if (static_cast<const Text&>(request).layer() == kFails) return absl::AbortedError(kFails);
    reply->CheckTypeAndMergeFrom(request);
    self->Attach(incoming);
    return absl::OkStatus();
  };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  const absl::Status registered = engine_->Register(std::move(handler));
  if (!registered.ok()) ledger_->Break(registered.ToString());
}

void Server::Take(const call::Method& method) {
  call::MethodHandler handler;
  handler.method = &method;
  handler.start = [this](call::ServerCall* call) {
    const uint64_t number = ++next_task_;
    Task* task = (tasks_[number] = std::make_unique<Task>(this, call, number)).get();
    task->Start();
  };
  handler.request = std::make_unique<Text>();
  handler.reply = std::make_unique<Text>();
  const absl::Status registered = engine_->Register(std::move(handler));
  if (!registered.ok()) ledger_->Break(registered.ToString());
}

uint32_t Server::SizeOf(uint32_t number) const {
  const uint32_t large = plan_.habits.large_bytes;
  return large != 0 && number % 8 == 7 ? large : 8 * (number % 16);
}

void Server::Attach(const call::Incoming& incoming) {
  if (incoming.attachment.empty() || incoming.reply == nullptr) return;
  const auto* data = reinterpret_cast<const char*>(incoming.attachment.data());
  const std::string bytes(data, incoming.attachment.size());
  if (Draw(2) == 0) {
    auto buffer = engine_->MakeBuffer(incoming.from, bytes.size());
    if (buffer.ok()) {
      std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(buffer->data()));
      incoming.reply->attachment = std::move(*buffer);
      return;
    }
  }
  incoming.reply->attachment = call::Buffer::Ordinary(bytes);
}

void Server::EndLater(uint64_t task, int64_t delay_ns) {
  After(delay_ns, [this, task] {
    const auto found = tasks_.find(task);
    if (found == tasks_.end()) return;
    found->second->End(absl::OkStatus());
    valve_.Flush();
    Acted();
  });
}

void Server::StartDrain() {
  if (closed()) return;
  const As as(simulation_, node_);
  engine_->StartDrain(now_ns() + Draw(2 * kMs), now_ns() + 10 * kMs);
  Acted();
}

void Server::EndEngine() {
  engine_->Close();
  while (!tasks_.empty()) tasks_.begin()->second->End(absl::CancelledError("the server ends"));
  if (gatekeeper_.inside() != 0) {
    ledger_->Break(absl::StrCat(gatekeeper_.inside(), " calls never left the interceptor"));
  }
  if (engine_->calls_under_way() != 0) ledger_->Break("calls are left at a closed server");
  engine_.reset();
}

std::string Server::Left() const {
  if (closed()) return "";
  if (tasks_.empty() && gatekeeper_.inside() == 0 && engine_->calls_under_way() == 0 &&
      !engine_->HasWaitingReplies() && tap().up().empty()) {
    return "";
  }
  return absl::StrCat(tasks_.size(), " tasks, ", gatekeeper_.inside(), " calls in interceptors, ",
                      engine_->calls_under_way(), " under way, ", engine_->session_counters().lent,
                      " lent, ", tap().up().size(), " peers");
}

}  // namespace sluice::nodes
