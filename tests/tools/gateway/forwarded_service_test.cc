// SPDX-License-Identifier: Apache-2.0
//
// ForwardedService in front of gRPC servers that keep no order of requests and replies. gRPC's generated services cannot do that; a
// generic one can.
#include "tools/gateway/forwarded_service.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "middleware/api/channel.h"
#include "middleware/api/raw_message.h"
#include "tests/tools/gateway/route_guide.sluice.h"
#include "tests/tools/gateway/route_service.h"
#include "tools/gateway/message_bytes.h"
#include "tools/gateway/reverse_gateway.h"

namespace sluice::gateway {
namespace forwarded_service_test {

using ::testing::HasSubstr;
using testing_support::Tally;
using tests::route::Point;
using tests::route::RouteGuideClient;
using tests::route::RouteSummary;

// Any method of a gRPC server. Steps, one after another: 'r' reads a request, 'R' reads the requests to their end, 'w' writes a reply,
// 'f' ends the call with OK. Without 'f' only a cancellation ends it.
class ScriptedRoutes final : public grpc::CallbackGenericService {
 public:
  // Of the next call.
  std::string steps;
  std::string reply;
  Tally requests;
  Tally cancelled;

 private:
  class Handler final : public grpc::ServerGenericBidiReactor {
   public:
    explicit Handler(ScriptedRoutes* routes)
        : routes_(routes), steps_(routes->steps), reply_(routes->reply) {
      Next();
    }

   private:
    void OnReadDone(bool ok) override {
      if (ok) routes_->requests.Add();
      if (!ok || steps_[at_] == 'r') ++at_;
      Next();
    }
    void OnWriteDone(bool) override {
      ++at_;
      Next();
    }
    void OnCancel() override {
      routes_->cancelled.Add();
      End(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }

    void Next() {
      if (at_ == steps_.size()) return;
      const char step = steps_[at_];
      if (step == 'f') return End(grpc::Status::OK);
      const std::lock_guard lock(mutex_);
      if (finished_) return;
      if (step == 'w') {
        outgoing_ = BufferOf(reply_);
        StartWrite(&outgoing_);
      } else {
        StartRead(&incoming_);
      }
    }
    void End(const grpc::Status& status) {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(finished_, true)) Finish(status);
    }

    ScriptedRoutes* const routes_;
    const std::string steps_;
    const std::string reply_;
    size_t at_ = 0;  // one operation at a time
    grpc::ByteBuffer incoming_;
    grpc::ByteBuffer outgoing_;
    std::mutex mutex_;
    bool finished_ = false;  // mutex_
  };

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    context->AddInitialMetadata("initial", "with the first reply");
    return new Handler(this);
  }
};

// The gateway listens on softdc.
class ForwardedServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    RouteSummary summary;
    summary.set_point_count(7);
    routes_.reply = summary.SerializeAsString();
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterCallbackGenericService(&routes_);
    grpc_server_ = builder.BuildAndStart();
    ASSERT_NE(grpc_server_, nullptr);
    ReverseGateway::Options options;
    options.grpc_server = absl::StrCat("127.0.0.1:", port);
    options.listen = "127.0.0.1:0";
    options.server.device = "softdc0";
    Point::descriptor()->file()->CopyTo(options.descriptors.add_file());
    auto gateway = ReverseGateway::Start(options);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    ChannelOptions channel_options;
    channel_options.device = "softdc0";
    auto channel = Channel::Connect(absl::StrCat("127.0.0.1:", gateway_->port()), channel_options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }
  void TearDown() override {
    channel_.reset();
    gateway_.reset();
    if (grpc_server_ != nullptr) grpc_server_->Shutdown();
  }
  // A call that hangs ends with DEADLINE_EXCEEDED.
  static CallContext Context() { return CallContext(absl::Seconds(60)); }
  RouteGuideClient client() { return RouteGuideClient(channel_); }

  ScriptedRoutes routes_;
  std::unique_ptr<grpc::Server> grpc_server_;
  std::unique_ptr<ReverseGateway> gateway_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(ForwardedServiceTest, ASecondReplyOfAUnaryCallIsAnError) {
  for (const char* steps : {"rww", "ww", "rwwf"}) {
    routes_.steps = steps;
    CallContext context = Context();
    const absl::Status status = client().GetFeature(context, Point()).status();
    EXPECT_TRUE(absl::IsInternal(status)) << steps << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("several replies")) << steps;
  }
  routes_.cancelled.WaitFor(2);  // the handlers that do not end by themselves
}

TEST_F(ForwardedServiceTest, ASecondReplyEndsAStreamOfRequestsThatGoesOn) {
  routes_.steps = "rww";
  CallContext context = Context();
  RouteSummary summary;
  auto record = client().RecordRoute(context, &summary);
  ASSERT_TRUE(record.Write(Point()));
  const absl::Status status = record.Finish();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("several replies"));
  routes_.cancelled.WaitFor(1);
}

// The server replies, and then counts requests to their end.
TEST_F(ForwardedServiceTest, RequestsPassAfterAnEarlyReply) {
  routes_.steps = "wRf";
  CallContext context = Context();
  RouteSummary summary;
  auto record = client().RecordRoute(context, &summary);
  Metadata initial;
  ASSERT_TRUE(
      record.ReadInitialMetadata(&initial));  // the reply is at the gateway, or about to come
  EXPECT_EQ(initial.Find("initial"), "with the first reply");
  constexpr int kPoints = 100;
  for (int i = 0; i < kPoints; ++i) ASSERT_TRUE(record.Write(Point()));
  record.WritesDone();
  const absl::Status status = record.Finish();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(summary.point_count(), 7);
  EXPECT_EQ(routes_.requests.count(), kPoints);
}

// While the client neither sends nor ends.
TEST_F(ForwardedServiceTest, AnEarlyEndHasReplyAndStatusOfTheServer) {
  routes_.steps = "rwf";
  CallContext context = Context();
  RouteSummary summary;
  auto record = client().RecordRoute(context, &summary);
  ASSERT_TRUE(record.Write(Point()));
  const absl::Status status = record.Finish();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(summary.point_count(), 7);
}

// Request and reply are longer than the first window of HTTP/2.
TEST_F(ForwardedServiceTest, AServerMayReplyBeforeItReads) {
  routes_.steps = "wrf";
  routes_.reply = std::string(3 << 20, 'x');
  const Method method("/sluice.tests.route.RouteGuide/GetFeature", call::Streams::kNobody,
                      /*idempotent=*/false);
  CallContext context = Context();
  const RawMessage request(std::string(3 << 20, 'y'));
  RawMessage reply;
  const absl::Status status = channel_->Call(method, context, request, &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reply.bytes().size(), routes_.reply.size());
  EXPECT_EQ(routes_.requests.count(), 1);
}

}  // namespace forwarded_service_test
}  // namespace sluice::gateway
