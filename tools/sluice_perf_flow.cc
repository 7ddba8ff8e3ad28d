// SPDX-License-Identifier: Apache-2.0
#include "tools/sluice_perf_flow.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/time/clock.h"
#include "tools/latency_report.h"
#include "tools/rate_over_time.h"
#include "transport/base/clock.h"
#include "transport/base/error.h"
#include "transport/base/histogram.h"

namespace sluice::tools {
namespace {

constexpr uint32_t kSchemaVersion = 1;
constexpr absl::Duration kPatience = absl::Seconds(30);

const std::vector<std::byte>& Bytes(size_t size) {
  static std::vector<std::byte> bytes;
  if (bytes.size() < size) bytes.resize(size, std::byte{'x'});
  return bytes;
}

// Flows that are each kept full: when a message is back, or known to be delivered, the next is sent.
class FullFlows final : public FlowHandler {
 public:
  FullFlows(Messenger* messenger, const PerfOptions& options)
      : messenger_(messenger), options_(options), ends_(options.flows) {
    for (End& end : ends_) end.sent_ns.resize(options.window);
  }

  absl::Status Open(const std::string& server) {
    const char* name = options_.replies != 0 ? FlowSink::kEchoEnd : FlowSink::kTakeEnd;
    const FlowOptions flow_options = {.window = options_.window,
                                      .report_delivery = options_.replies == 0};
    for (End& end : ends_) {
      auto flow = messenger_->Open(server, name, flow_options, this);
      if (!flow.ok()) return flow.status();
      end.flow = *flow;
      const auto index = static_cast<uint32_t>(flow->id());
      if (index >= by_index_.size()) by_index_.resize(index + 1, nullptr);
      by_index_[index] = &end;
    }
    const bool all =
        messenger_->Drive([this] { return open_ == ends_.size() || closed_ != 0; }, kPatience);
    if (closed_ != 0) return why_;
    if (all) return absl::OkStatus();
    return base::Error(absl::StatusCode::kDeadlineExceeded, "the flows were not accepted in time",
                       {.layer = "tools",
                        .peer = server,
                        .operation = "open flows",
                        .cause = "the other program does not poll",
                        .remedy = "look whether sluice_perf sink runs there"});
  }

  void Run(absl::Duration duration) {
    start_ns_ = end_ns_ = clock_.NowNs();
    stop_ns_ = start_ns_ + absl::ToInt64Nanoseconds(duration);
    running_ = true;
    rates_.Start(start_ns_, stop_ns_ - start_ns_);
    for (End& end : ends_) Fill(end);
    // After the time nothing is sent any more, and what is under way comes home.
    messenger_->Drive(
        [this] {
          if (running_ && clock_.NowNs() >= stop_ns_) running_ = false;
          return closed_ != 0 || (!running_ && under_way_ == 0);
        },
        duration + kPatience);
    running_ = false;
    // Whatever is still under way is lost.
    counts_.set_failed(under_way_);
    if (under_way_ != 0) counts_.set_first_failure(why_.ok() ? "no answer" : why_.ToString());
  }

  // What was counted so far was the warm-up.
  void Forget() {
    latencies_ns_.Reset();
    counts_.Clear();
  }
  void Close() {
    for (const End& end : ends_) end.flow.Close();
    messenger_->Drive([this] { return closed_ == ends_.size(); }, kPatience);
  }

  const base::Histogram& latencies_ns() const { return latencies_ns_; }
  double seconds() const { return static_cast<double>(end_ns_ - start_ns_) / 1e9; }
  BenchCounts counts() const {
    BenchCounts counts = counts_;
    counts.set_ok(counts_.started() - counts_.failed());
    return counts;
  }
  const RateOverTime& rates() const { return rates_; }

 private:
  struct End {
    Flow flow;
    std::vector<int64_t> sent_ns;  // a ring of those under way
    uint64_t sent = 0;
    uint64_t home = 0;  // back, or known to be delivered
  };
  End& Of(Flow flow) { return *by_index_[static_cast<uint32_t>(flow.id())]; }

  void Fill(End& end) {
    while (running_ && end.sent - end.home < options_.window) {
      const int64_t now_ns = clock_.NowNs();
      if (now_ns >= stop_ns_ && counts_.started() != 0) {  // one in any case
        running_ = false;
        return;
      }
      // Refused: OnWritable() follows.
      if (!end.flow.Send({Bytes(options_.size_bytes).data(), options_.size_bytes}).ok()) return;
      end.sent_ns[end.sent++ % options_.window] = now_ns;
      ++under_way_;
      counts_.set_started(counts_.started() + 1);
    }
  }
  void OnHome(End& end, uint64_t total) {
    end_ns_ = clock_.NowNs();
    for (; end.home != total; --under_way_) {
      latencies_ns_.Record(end_ns_ - end.sent_ns[end.home++ % options_.window]);
      rates_.Count(end_ns_);
    }
    Fill(end);
  }

  void OnOpen(Flow) override { ++open_; }
  void OnMessage(Flow flow, std::span<const std::byte>) override {
    End& end = Of(flow);
    OnHome(end, end.home + 1);
  }
  void OnDelivered(Flow flow, uint64_t total) override {
    if (options_.replies == 0) OnHome(Of(flow), total);
  }
  void OnWritable(Flow flow) override { Fill(Of(flow)); }
  void OnClosed(Flow, const absl::Status& why, const FlowTotals&) override {
    ++closed_;
    if (why_.ok()) why_ = why;
  }

  Messenger* const messenger_;
  const PerfOptions& options_;
  base::RealClock clock_;
  std::vector<End> ends_;
  std::vector<End*> by_index_;  // by the lower half of a flow's id
  size_t open_ = 0;
  size_t closed_ = 0;
  absl::Status why_;
  bool running_ = false;
  uint64_t under_way_ = 0;
  int64_t start_ns_ = 0;
  int64_t stop_ns_ = 0;
  int64_t end_ns_ = 0;
  base::Histogram latencies_ns_;
  RateOverTime rates_;
  BenchCounts counts_;
};

MessengerOptions OptionsOf(const PerfOptions& options) {
  MessengerOptions messenger;
  messenger.device = options.device;
  messenger.authentication.secret_file = options.secret_file;
  MakeRoomFor(options.size_bytes, &messenger.limits);
  messenger.limits.lanes = options.use_lanes;
  return messenger;
}

}  // namespace

absl::StatusOr<BenchResult> MeasureFlows(const PerfOptions& options, const std::string& server) {
  auto messenger = Messenger::Create(OptionsOf(options));
  if (!messenger.ok()) return messenger.status();

  BenchResult result;
  result.set_schema_version(kSchemaVersion);
  result.set_tool("sluice_perf");
  result.set_test("flow");
  *result.mutable_config() = ConfigOf(options, server);
  result.mutable_config()->clear_deadline_ns();
  result.mutable_config()->set_flows(options.flows);
  result.mutable_config()->set_one_way(options.replies == 0);
  *result.mutable_host() = ThisHost();
  const std::string& choice = (*messenger)->device_choice();
  result.mutable_host()->set_device(choice.substr(0, choice.find(':')));
  result.mutable_host()->set_device_reason(choice);

  FullFlows flows(messenger->get(), options);
  if (absl::Status status = flows.Open(server); !status.ok()) return status;
  if (options.warmup > absl::ZeroDuration()) flows.Run(options.warmup);
  flows.Forget();
  result.set_started_at(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
  flows.Run(options.duration);

  *result.mutable_counts() = flows.counts();
  result.mutable_counts()->set_through_lanes((*messenger)->endpoint_counters().lane_received);
  *result.mutable_latency() = Summarise(flows.latencies_ns());
  result.set_duration_seconds(flows.seconds());
  flows.rates().AddTo(&result);
  if (flows.seconds() > 0) {
    result.set_calls_per_second(static_cast<double>(result.counts().ok()) / flows.seconds());
    result.set_payload_bytes_per_second(result.calls_per_second() * options.size_bytes);
  }
  flows.Close();
  return result;
}

absl::Status FlowSink::AcceptOn(Messenger& messenger, uint32_t window) {
  const FlowOptions options = {.window = window};
  absl::Status status = messenger.Accept(kEchoEnd, options, [this](Flow flow, const Offer&) {
    const auto index = static_cast<uint32_t>(flow.id());
    if (index >= echoes_.size()) echoes_.resize(index + 1);
    echoes_[index] = {.open = true};
    return this;
  });
  if (!status.ok()) return status;
  return messenger.Accept(kTakeEnd, options, [this](Flow, const Offer&) { return this; });
}

void FlowSink::OnMessage(Flow flow, std::span<const std::byte> message) {
  if (static_cast<uint32_t>(flow.id()) >= echoes_.size() || !Of(flow).open) return;
  Echo& echo = Of(flow);
  if (echo.unsent.empty() && flow.Send({Bytes(message.size()).data(), message.size()}).ok()) return;
  echo.unsent.push_back(static_cast<uint32_t>(message.size()));
  OnWritable(flow);
}

void FlowSink::OnWritable(Flow flow) {
  std::deque<uint32_t>& unsent = Of(flow).unsent;
  while (!unsent.empty() && flow.Send({Bytes(unsent.front()).data(), unsent.front()}).ok()) {
    unsent.pop_front();
  }
}

void FlowSink::OnClosed(Flow flow, const absl::Status&, const FlowTotals&) {
  if (static_cast<uint32_t>(flow.id()) < echoes_.size()) Of(flow) = {};
}

}  // namespace sluice::tools
