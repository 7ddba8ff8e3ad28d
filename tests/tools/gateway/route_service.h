// SPDX-License-Identifier: Apache-2.0
//
// RouteService: gRPC's example service at a Sluice server. The request's metadata asks for what a test needs:
//
//   do: wait        the handler waits until its caller no longer does
//   do: fail        it ends with OutOfStock()
//   do: attach      its reply has an attachment
//   length: N       the name of a feature has N bytes
//   echo-*          comes back at the end, and from streams at the beginning as well
//
// Ownership     The test. It outlives the server.
// Threads       Handlers run on the polling thread. Counters and gates: any.
#ifndef SLUICE_TESTS_TOOLS_GATEWAY_ROUTE_SERVICE_H_
#define SLUICE_TESTS_TOOLS_GATEWAY_ROUTE_SERVICE_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "middleware/api/signal.h"
#include "tests/tools/gateway/route_guide.sluice.h"

namespace sluice::testing_support {

using tests::route::Feature;
using tests::route::Point;
using tests::route::Rectangle;
using tests::route::RouteGuideCoServiceBase;
using tests::route::RouteNote;
using tests::route::RouteSummary;

// A number that a test waits for.
class Tally {
 public:
  // Before the first Add().
  void OnAdd(std::function<void()> on_add) { on_add_ = std::move(on_add); }
  void Add() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
    if (on_add_) on_add_();
  }
  void WaitFor(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  std::function<void()> on_add_;
};

constexpr char kStockUrl[] = "type.googleapis.com/shop.Stock";

inline absl::Status OutOfStock() {
  absl::Status status = absl::FailedPreconditionError("out of stock: 100 % \xc3\xa4");
  status.SetPayload(kStockUrl, absl::Cord(std::string("\x08\x00\xff", 3)));
  return status;
}

class RouteService final : public RouteGuideCoServiceBase {
 public:
  Task<absl::Status> GetFeature(ServerContext& context, const Point& request,
                                Feature* reply) override {
    time_left_ns.store(context.deadline_ns() == call::kNoDeadlineNs
                           ? -1
                           : absl::ToInt64Nanoseconds(context.time_left_on_arrival()));
    started.Add();
    if (absl::Status status = co_await Ask(context); !status.ok()) co_return status;
    *reply = FeatureAt(context, request.latitude());
    *reply->mutable_location() = request;
    ended.Add();
    co_return absl::OkStatus();
  }

  Task<absl::Status> ListFeatures(ServerContext& context, const Rectangle& request,
                                  ServerWriter<Feature> writer) override {
    started.Add();
    if (absl::Status status = co_await Ask(context); !status.ok()) co_return status;
    SendEcho(context);
    for (int at = request.lo().latitude(); !request.has_hi() || at <= request.hi().latitude();
         ++at) {
      const Feature feature = FeatureAt(context, at);
      if (!co_await writer.Write(feature)) {
        stopped.Add();
        co_return absl::CancelledError("nobody reads");
      }
      written.Add();
    }
    ended.Add();
    co_return absl::OkStatus();
  }

  Task<absl::Status> RecordRoute(ServerContext& context, ServerReader<Point> reader,
                                 RouteSummary* reply) override {
    started.Add();
    if (absl::Status status = co_await Ask(context); !status.ok()) co_return status;
    SendEcho(context);
    Point point;
    while (co_await reader.Read(&point)) {
      reply->set_point_count(reply->point_count() + 1);
      read.Add();
    }
    if (context.cancelled()) {
      stopped.Add();
      co_return absl::CancelledError("half a route");
    }
    ended.Add();
    co_return absl::OkStatus();
  }

  Task<absl::Status> RouteChat(ServerContext& context, ServerReader<RouteNote> reader,
                               ServerWriter<RouteNote> writer) override {
    started.Add();
    if (absl::Status status = co_await Ask(context); !status.ok()) co_return status;
    SendEcho(context);
    RouteNote note;
    while (co_await reader.Read(&note)) {
      read.Add();
      if (note.message() == "fail") co_return OutOfStock();
      if (note.message() == "cancel") co_return absl::CancelledError("the handler's own");
      if (!co_await writer.Write(note)) break;
    }
    if (context.cancelled()) {
      stopped.Add();
      co_return absl::CancelledError("half a chat");
    }
    ended.Add();
    co_return absl::OkStatus();
  }

  std::atomic<int64_t> time_left_ns{0};  // of the last call of GetFeature; -1: it had no deadline
  Tally started;
  Tally read;     // messages of clients
  Tally written;  // features of ListFeatures
  Tally ended;    // handlers that came to their end
  Tally stopped;  // handlers whose callers were gone

 private:
  Task<absl::Status> Ask(ServerContext& context) {
    const Metadata& metadata = context.metadata();
    for (const auto& [key, value] : metadata.entries()) {
      if (!absl::StartsWith(key, "echo-")) continue;
      if (absl::Status status = context.AddReplyMetadata(key, value); !status.ok())
        co_return status;
    }
    const auto what = metadata.Find("do");
    if (what == "fail") co_return OutOfStock();
    if (what == "attach") context.set_reply_attachment("attached");
    if (what != "wait") co_return absl::OkStatus();
    co_await never_.Wait(context.stop_token());
    stopped.Add();
    co_return absl::CancelledError("nobody waits");
  }
  static void SendEcho(ServerContext& context) {
    Metadata initial;
    for (const auto& [key, value] : context.metadata().entries()) {
      if (absl::StartsWith(key, "echo-")) (void)initial.Add(key, value);
    }
    if (!initial.entries().empty()) (void)context.SendInitialMetadata(initial);
  }
  static Feature FeatureAt(ServerContext& context, int latitude) {
    Feature feature;
    feature.set_name(absl::StrCat("feature ", latitude));
    if (const auto length = context.metadata().Find("length"); length.has_value()) {
      feature.set_name(std::string(std::strtoull(std::string(*length).c_str(), nullptr, 10), 'x'));
    }
    feature.mutable_location()->set_latitude(latitude);
    return feature;
  }

  Signal never_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_TOOLS_GATEWAY_ROUTE_SERVICE_H_
