// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/span_recorder.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "middleware/api/trace_context.h"
#include "transport/base/random.h"

namespace sluice {
namespace {

constexpr uint8_t kSampled = 1;

uint64_t SystemRandom64() {
  thread_local base::SystemRandom random;
  return random.Next64();
}

std::optional<TraceContext> SampledTrace(const Metadata& metadata) {
  if (metadata.entries().empty()) return std::nullopt;
  const auto text = metadata.Find(kTraceParent);
  auto trace = text.has_value() ? TraceContext::Parse(*text) : std::nullopt;
  if (trace.has_value() && !trace->sampled()) trace.reset();
  return trace;
}

std::string MethodName(const char* method) { return std::string(absl::StripPrefix(method, "/")); }

}  // namespace

// Sends the id of the span to the server, as parent id in the metadata. Reads it from the metadata again when the call ends.
class SpanRecorder::Client final : public ClientInterceptor {
 public:
  explicit Client(std::shared_ptr<SpanRecorder> recorder) : recorder_(std::move(recorder)) {}

  absl::Status OnCall(ClientCall& call) override {
    TraceContext trace;
    if (call.metadata().Find(kTraceParent).has_value()) {
      const auto parent = SampledTrace(call.metadata());
      if (!parent.has_value()) return absl::OkStatus();
      trace = *parent;
    } else if (recorder_->Samples()) {
      trace = {{recorder_->NewId(), recorder_->NewId()}, 0, kSampled};
    } else {
      return absl::OkStatus();
    }
    const uint64_t span_id = recorder_->NewId();
    // If the metadata has no room for it, the call continues without a span.
    if (!call.SetMetadata(kTraceParent, trace.Child(span_id).ToString()).ok())
      return absl::OkStatus();
    std::lock_guard lock(recorder_->mutex_);
    recorder_->parents_[span_id] = trace.span_id;
    return absl::OkStatus();
  }

  void OnEnd(const ClientCall& call, const absl::Status& status, absl::Duration took) override {
    const auto trace = SampledTrace(call.metadata());
    if (!trace.has_value()) return;
    uint64_t parent_id = 0;
    {
      std::lock_guard lock(recorder_->mutex_);
      const auto parent = recorder_->parents_.extract(trace->span_id);
      if (parent.empty()) return;  // no room in the metadata: the trace is the caller's
      parent_id = parent.mapped();
    }
    const int64_t now_ns = recorder_->UnixNs();
    recorder_->Add({.trace_id = trace->trace_id,
                    .span_id = trace->span_id,
                    .parent_id = parent_id,
                    .kind = Span::Kind::kClient,
                    .name = MethodName(call.method()),
                    .peer = call.server(),
                    .start_unix_ns = now_ns - absl::ToInt64Nanoseconds(took),
                    .end_unix_ns = now_ns,
                    .status = status});
  }

 private:
  const std::shared_ptr<SpanRecorder> recorder_;
};

class SpanRecorder::Server final : public ServerInterceptor {
 public:
  explicit Server(std::shared_ptr<SpanRecorder> recorder) : recorder_(std::move(recorder)) {}

  absl::Status OnCall(const ServerContext& context) override {
    const auto trace = context.trace();
    if (!trace.has_value() || !trace->sampled()) return absl::OkStatus();
    const int64_t now_ns = recorder_->UnixNs();
    std::lock_guard lock(recorder_->mutex_);
    recorder_->handlers_[trace->span_id] = now_ns;
    return absl::OkStatus();
  }

  void OnEnd(const ServerContext& context, const absl::Status& status,
             absl::Duration took) override {
    const auto trace = context.trace();
    if (!trace.has_value() || !trace->sampled()) return;
    int64_t handler_ns = 0;
    {
      std::lock_guard lock(recorder_->mutex_);
      const auto began = recorder_->handlers_.extract(trace->span_id);
      if (began.empty()) return;
      handler_ns = began.mapped();
    }
    const int64_t now_ns = recorder_->UnixNs();
    // If a later interceptor refuses the call, `took` is 0. `took` and UnixNs() use different clocks, so the arrival may appear to be
    // later than the start of the handler.
    const int64_t arrived_ns = std::min(now_ns - absl::ToInt64Nanoseconds(took), handler_ns);
    const auto caller = SampledTrace(context.metadata());
    Span span = {.trace_id = trace->trace_id,
                 .span_id = trace->span_id,
                 .parent_id = caller.has_value() ? caller->span_id : 0,
                 .kind = Span::Kind::kServer,
                 .name = MethodName(context.method()),
                 .peer = context.peer(),
                 .start_unix_ns = arrived_ns,
                 .end_unix_ns = now_ns,
                 .status = status};
    const auto part = [&](const char* name, int64_t start_ns, int64_t end_ns) {
      recorder_->Add({.trace_id = span.trace_id,
                      .span_id = recorder_->NewId(),
                      .parent_id = span.span_id,
                      .name = name,
                      .start_unix_ns = start_ns,
                      .end_unix_ns = std::max(start_ns, end_ns)});
    };
    part("wait", arrived_ns, handler_ns);
    part("handler", handler_ns, now_ns);
    recorder_->Add(std::move(span));
  }

 private:
  const std::shared_ptr<SpanRecorder> recorder_;
};

SpanRecorder::SpanRecorder(SpanOptions options) : options_(std::move(options)) {
  if (!options_.unix_ns) options_.unix_ns = &absl::GetCurrentTimeNanos;
  if (!options_.random) options_.random = &SystemRandom64;
  options_.max_spans = std::max<size_t>(options_.max_spans, 1);
}

std::shared_ptr<ClientInterceptor> SpanRecorder::ForChannels() {
  return std::make_shared<Client>(shared_from_this());
}

std::shared_ptr<ServerInterceptor> SpanRecorder::ForServers() {
  return std::make_shared<Server>(shared_from_this());
}

std::vector<Span> SpanRecorder::Take() {
  std::vector<Span> spans;
  std::lock_guard lock(mutex_);
  spans.swap(ended_);
  return spans;
}

uint64_t SpanRecorder::NewId() {
  const uint64_t id = options_.random();
  return id == 0 ? 1 : id;
}

bool SpanRecorder::Samples() {
  return options_.one_in != 0 &&
         calls_.fetch_add(1, std::memory_order_relaxed) % options_.one_in == 0;
}

void SpanRecorder::Add(Span span) {
  std::lock_guard lock(mutex_);
  if (ended_.size() < options_.max_spans) {
    ended_.push_back(std::move(span));
  } else {
    dropped_.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace sluice
