// SPDX-License-Identifier: Apache-2.0
#include "tools/sluice_perf_rpc.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "examples/echo/echo.sluice.h"
#include "middleware/api/channel.h"
#include "tools/latency_report.h"
#include "tools/open_loop.h"
#include "tools/rate_over_time.h"
#include "transport/base/clock.h"
#include "transport/base/histogram.h"

namespace sluice::tools {
namespace {

using examples::echo::EchoClient;
using examples::echo::SayReply;
using examples::echo::SayRequest;

constexpr uint32_t kSchemaVersion = 1;

// What became of a run's calls. Of whoever drives.
class CallCounts {
 public:
  void Clear() {
    counts_.Clear();
    by_code_.clear();
  }
  void Start() { counts_.set_started(counts_.started() + 1); }
  void Fail(const absl::Status& status) {
    if (failed() == 0)
      counts_.set_first_failure(status.ToString(absl::StatusToStringMode::kWithNoExtraData));
    counts_.set_failed(failed() + 1);
    ++by_code_[status.code()];
  }
  uint64_t failed() const { return counts_.failed(); }
  // Enough is enough: calls on a broken connection fail fast.
  bool enough() const { return failed() >= kMaxFailures; }

  BenchCounts Result() const {
    BenchCounts result = counts_;
    result.set_ok(result.started() - result.failed());
    for (const auto& [code, times] : by_code_) {
      (*result.mutable_failed_by_code())[absl::StatusCodeToString(code)] = times;
    }
    return result;
  }

 private:
  static constexpr uint64_t kMaxFailures = 1000;

  BenchCounts counts_;
  std::map<absl::StatusCode, uint64_t> by_code_;
};

// `window` calls that each start again when they end, until the time is over. The end of a call is
// the start of the next one in its place, so the clock is read once per call.
class ClosedLoop {
 public:
  ClosedLoop(Channel* channel, const PerfOptions& options)
      : channel_(channel), context_(options.deadline), places_(options.window) {
    for (Place& place : places_) {
      place.loop = this;
      place.request.set_payload(std::string(options.size_bytes, 'x'));
    }
  }

  void Run(absl::Duration duration) {
    start_ns_ = clock_.NowNs();
    stop_ns_ = start_ns_ + absl::ToInt64Nanoseconds(duration);
    end_ns_ = start_ns_;
    rates_.Start(start_ns_, stop_ns_ - start_ns_);
    if (places_.size() == 1) {
      OneByOne();
    } else {
      Windowed();
    }
  }

  // What was counted so far was the warm-up.
  void Forget() {
    latencies_ns_.Reset();
    counts_.Clear();
  }

  const base::Histogram& latencies_ns() const { return latencies_ns_; }
  double seconds() const { return static_cast<double>(end_ns_ - start_ns_) / 1e9; }
  BenchCounts counts() const { return counts_.Result(); }
  const RateOverTime& rates() const { return rates_; }

 private:
  struct Place {
    ClosedLoop* loop = nullptr;
    SayRequest request;
    SayReply reply;
    int64_t started_ns = 0;
    bool running = false;
  };

  bool Over(int64_t now_ns) const { return now_ns >= stop_ns_ || counts_.enough(); }

  void OneByOne() {
    const EchoClient client(std::shared_ptr<Channel>(std::shared_ptr<void>(), channel_));
    Place& place = places_[0];
    int64_t now_ns = start_ns_;
    while (!Over(now_ns)) {
      place.started_ns = now_ns;
      counts_.Start();
      const absl::Status status = client.Say(context_, place.request, &place.reply);
      now_ns = clock_.NowNs();
      Count(place, status, now_ns);
    }
  }

  void Windowed() {
    // Started inside Drive(), so that everything here belongs to the thread that drives.
    const auto step = [this] {
      const int64_t now_ns = idle_ > 0 || running_ == 0 ? clock_.NowNs() : end_ns_;
      if (idle_ > 0 && !Over(now_ns)) StartIdle(now_ns);
      return running_ == 0 && Over(now_ns);
    };
    idle_ = places_.size();
    while (!channel_->Drive(step, absl::Seconds(1))) {
    }
  }

  void StartIdle(int64_t now_ns) {
    for (Place& place : places_) {
      if (!place.running && !Over(now_ns)) Start(place, now_ns);
    }
  }

  void Start(Place& place, int64_t now_ns) {
    place.started_ns = now_ns;
    counts_.Start();
    const absl::Status status =
        channel_->StartCall(EchoClient::SayMethod(), context_, place.request, &place.reply,
                            &ClosedLoop::OnDone, &place);
    if (status.ok()) {
      place.running = true;
      ++running_;
      --idle_;
    } else {
      Count(place, status, now_ns);
    }
  }

  static void OnDone(void* argument, const absl::Status& status) {
    auto* place = static_cast<Place*>(argument);
    ClosedLoop* loop = place->loop;
    place->running = false;
    --loop->running_;
    ++loop->idle_;
    const int64_t now_ns = loop->clock_.NowNs();
    loop->Count(*place, status, now_ns);
    if (status.ok() && !loop->Over(now_ns)) loop->Start(*place, now_ns);
  }

  void Count(const Place& place, const absl::Status& status, int64_t now_ns) {
    end_ns_ = std::max(end_ns_, now_ns);
    if (status.ok() && place.reply.payload().size() == place.request.payload().size()) {
      latencies_ns_.Record(now_ns - place.started_ns);
      rates_.Count(now_ns);
      return;
    }
    counts_.Fail(status.ok() ? absl::DataLossError("the reply is not as long as the request")
                             : status);
  }

  Channel* const channel_;
  CallContext context_;
  base::RealClock clock_;
  std::vector<Place> places_;
  size_t idle_ = 0;
  size_t running_ = 0;
  int64_t start_ns_ = 0;
  int64_t stop_ns_ = 0;
  int64_t end_ns_ = 0;
  base::Histogram latencies_ns_;
  RateOverTime rates_;
  CallCounts counts_;
};

// Calls by a schedule.
class ScheduledCalls {
 public:
  ScheduledCalls(Channel* channel, const PerfOptions& options)
      : channel_(channel), options_(options), context_(options.deadline), places_(options.window) {
    for (Place& place : places_) {
      place.calls = this;
      place.request.set_payload(std::string(options.size_bytes, 'x'));
      free_.push_back(&place);
    }
  }

  // Until the last one has ended; each has a deadline.
  void Run(absl::Duration duration) {
    start_ns_ = end_ns_ = clock_.NowNs();
    loop_.emplace(OpenLoop::Plan{.per_second = static_cast<double>(options_.rate),
                                 .start_ns = start_ns_,
                                 .duration_ns = absl::ToInt64Nanoseconds(duration),
                                 .most_outstanding = options_.window});
    counts_.Clear();
    rates_.Start(start_ns_, absl::ToInt64Nanoseconds(duration));
    const auto step = [this] {
      loop_->StartDue(clock_.NowNs(), [this](int64_t intended_ns) { Start(intended_ns); });
      return loop_->done() || (counts_.enough() && loop_->outstanding() == 0);
    };
    for (bool done = false; !done;) {
      const int64_t next_ns = loop_->NextNs();
      done = channel_->Drive(step, next_ns == INT64_MAX ? absl::Seconds(1)
                                                        : absl::Nanoseconds(std::max<int64_t>(
                                                              next_ns - clock_.NowNs(), 1'000)));
    }
  }

  // What was counted so far was the warm-up.
  void Forget() { loop_.reset(); }

  const base::Histogram& latencies_ns() const { return loop_->latencies_ns(); }
  double seconds() const { return static_cast<double>(end_ns_ - start_ns_) / 1e9; }
  BenchCounts counts() const { return counts_.Result(); }
  const RateOverTime& rates() const { return rates_; }

 private:
  struct Place {
    ScheduledCalls* calls = nullptr;
    SayRequest request;
    SayReply reply;
    int64_t intended_ns = 0;
  };

  void Start(int64_t intended_ns) {
    Place* place = free_.back();
    free_.pop_back();
    place->intended_ns = intended_ns;
    counts_.Start();
    const absl::Status status =
        channel_->StartCall(EchoClient::SayMethod(), context_, place->request, &place->reply,
                            &ScheduledCalls::OnDone, place);
    if (!status.ok()) End(place, status);
  }
  static void OnDone(void* argument, const absl::Status& status) {
    auto* place = static_cast<Place*>(argument);
    place->calls->End(place, status);
  }
  void End(Place* place, const absl::Status& status) {
    end_ns_ = clock_.NowNs();
    loop_->End(place->intended_ns, end_ns_, status.ok());
    free_.push_back(place);
    if (status.ok()) {
      rates_.Count(end_ns_);
    } else {
      counts_.Fail(status);
    }
  }

  Channel* const channel_;
  const PerfOptions& options_;
  CallContext context_;
  base::RealClock clock_;
  std::vector<Place> places_;
  std::vector<Place*> free_;
  std::optional<OpenLoop> loop_;
  int64_t start_ns_ = 0;
  int64_t end_ns_ = 0;
  RateOverTime rates_;
  CallCounts counts_;
};

// The warm-up, the measurement, and what it says.
template <typename Load>
void Measure(Load& load, const PerfOptions& options, BenchResult* result) {
  if (options.warmup > absl::ZeroDuration()) load.Run(options.warmup);
  load.Forget();
  result->set_started_at(absl::FormatTime(absl::RFC3339_full, absl::Now(), absl::UTCTimeZone()));
  load.Run(options.duration);
  *result->mutable_counts() = load.counts();
  *result->mutable_latency() = Summarise(load.latencies_ns());
  result->set_duration_seconds(load.seconds());
  load.rates().AddTo(result);
}

ChannelOptions OptionsOf(const PerfOptions& options) {
  ChannelOptions channel;
  channel.device = options.device;
  channel.authentication.secret_file = options.secret_file;
  channel.max_outstanding_calls = std::max(channel.max_outstanding_calls, options.window);
  MakeRoomFor(options.size_bytes, &channel.limits);
  channel.limits.lanes = options.use_lanes;
  // Calls that are due must not wait until this thread has slept.
  if (options.rate != 0) channel.spin = absl::Seconds(1);
  return channel;
}

}  // namespace

absl::StatusOr<BenchResult> MeasureRpc(const PerfOptions& options, const std::string& server) {
  auto channel = Channel::Connect(server, OptionsOf(options));
  if (!channel.ok()) return channel.status();

  BenchResult result;
  result.set_schema_version(kSchemaVersion);
  result.set_tool("sluice_perf");
  result.set_test("rpc");
  *result.mutable_config() = ConfigOf(options, server);
  *result.mutable_host() = ThisHost();
  const std::string& choice = (*channel)->device_choice();
  result.mutable_host()->set_device(choice.substr(0, choice.find(':')));
  result.mutable_host()->set_device_reason(choice);

  if (options.rate != 0) {
    ScheduledCalls load(channel->get(), options);
    Measure(load, options, &result);
  } else {
    ClosedLoop load(channel->get(), options);
    Measure(load, options, &result);
  }
  result.mutable_counts()->set_through_lanes((*channel)->endpoint_counters().lane_received);
  if (result.duration_seconds() > 0) {
    result.set_calls_per_second(static_cast<double>(result.counts().ok()) /
                                result.duration_seconds());
    result.set_payload_bytes_per_second(result.calls_per_second() * options.size_bytes);
  }
  return result;
}

std::string ResultText(const BenchResult& result) {
  const LatencySummary& latency = result.latency();
  const bool flows = result.test() == "flow";
  const char* what = flows ? "messages" : "calls";
  std::string text = absl::StrFormat("%s to %s over %s\n", result.test(), result.config().server(),
                                     result.host().device_reason());
  if (flows) {
    absl::StrAppendFormat(&text, "%u flows, ", result.config().flows());
  }
  const bool open = result.config().loop() == "open";
  if (open) {
    absl::StrAppendFormat(&text,
                          "%.0f calls a second by a schedule, latency from the intended start, ",
                          result.config().rate_per_second());
  }
  absl::StrAppendFormat(&text, "%u outstanding%s (%s loop), %u-byte payload, %.2f s measured%s\n",
                        result.config().window(), open ? " at most" : "", result.config().loop(),
                        result.config().payload_bytes(), result.duration_seconds(),
                        !flows                      ? ""
                        : result.config().one_way() ? ", one way: until known to be delivered"
                                                    : ", there and back");
  absl::StrAppendFormat(&text, "  %12u %s, %u failed\n", result.counts().started(), what,
                        result.counts().failed());
  if (result.counts().through_lanes() > 0) {
    absl::StrAppendFormat(&text, "  %12u came through a lane, warm-up included\n",
                          result.counts().through_lanes());
  }
  if (result.counts().failed() > 0) {
    absl::StrAppendFormat(&text, "  the first: %s\n", result.counts().first_failure());
  }
  absl::StrAppendFormat(&text, "  %12.0f %s a second, %.1f MB/s of payload\n",
                        result.calls_per_second(), what, result.payload_bytes_per_second() / 1e6);
  if (result.raw_round_trip_ns() > 0) {
    absl::StrAppendFormat(
        &text, "  %12s  a cache line there and back on this machine; p50 is %.1f times that\n",
        FormatNs(result.raw_round_trip_ns()), latency.p50_ns() / result.raw_round_trip_ns());
  }
  const std::pair<const char*, double> rows[] = {
      {"min", latency.min_ns()}, {"p50", latency.p50_ns()},    {"p90", latency.p90_ns()},
      {"p99", latency.p99_ns()}, {"p99.9", latency.p999_ns()}, {"p99.99", latency.p9999_ns()},
      {"max", latency.max_ns()}, {"mean", latency.mean_ns()},  {"stdev", latency.stdev_ns()}};
  for (const auto& [name, ns] : rows) {
    absl::StrAppendFormat(&text, "  %12s  %s\n", name, FormatNs(ns));
  }
  return text;
}

}  // namespace sluice::tools
