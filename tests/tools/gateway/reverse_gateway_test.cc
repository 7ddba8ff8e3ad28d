// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/reverse_gateway.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "middleware/api/channel.h"
#include "proto/health.sluice.h"
#include "proto/reflection.sluice.h"
#include "tests/tools/gateway/route_guide.grpc.pb.h"
#include "tests/tools/gateway/route_guide.sluice.h"
#include "tests/tools/gateway/route_service.h"
#include "tools/gateway/status_conversion.h"

namespace sluice::gateway {
namespace reverse_gateway_test {

using ::testing::HasSubstr;
using testing_support::kStockUrl;
using testing_support::OutOfStock;
using testing_support::Tally;
using tests::route::Feature;
using tests::route::Point;
using tests::route::Rectangle;
using tests::route::RouteGuide;
using tests::route::RouteGuideClient;
using tests::route::RouteNote;
using tests::route::RouteSummary;

// gRPC's example service, at gRPC's own server. Metadata "do" and "echo-one" as in RouteService.
class GrpcRoutes final : public RouteGuide::Service {
 public:
  grpc::Status GetFeature(grpc::ServerContext* context, const Point* request,
                          Feature* reply) override {
    has_deadline = context->deadline() != std::chrono::system_clock::time_point::max();
    Echo(context);
    if (Asked(context, "do") == "fail") return ToGrpc(OutOfStock());
    if (Asked(context, "do") == "wait") {
      started.Add();
      while (!context->IsCancelled()) std::this_thread::yield();
      stopped.Add();
      return grpc::Status::CANCELLED;
    }
    reply->set_name(absl::StrCat("feature ", request->latitude()));
    return grpc::Status::OK;
  }
  grpc::Status ListFeatures(grpc::ServerContext* context, const Rectangle* request,
                            grpc::ServerWriter<Feature>* writer) override {
    Echo(context);
    Feature feature;
    for (int at = request->lo().latitude(); !request->has_hi() || at <= request->hi().latitude();
         ++at) {
      feature.mutable_location()->set_latitude(at);
      if (at > 1 && Asked(context, "do") == "swell") feature.set_name(std::string(100'000, 'x'));
      if (writer->Write(feature)) continue;
      stopped.Add();
      break;
    }
    return grpc::Status::OK;
  }
  grpc::Status RecordRoute(grpc::ServerContext* context, grpc::ServerReader<Point>* reader,
                           RouteSummary* reply) override {
    Echo(context);
    Point point;
    int count = 0;
    while (reader->Read(&point)) {
      if (point.latitude() < 0) return ToGrpc(OutOfStock());
      ++count;
      started.Add();
    }
    if (context->IsCancelled()) stopped.Add();
    reply->set_point_count(count);
    return grpc::Status::OK;
  }
  grpc::Status RouteChat(grpc::ServerContext* context,
                         grpc::ServerReaderWriter<RouteNote, RouteNote>* stream) override {
    Echo(context);
    RouteNote note;
    while (stream->Read(&note)) {
      if (note.message() == "fail") return ToGrpc(OutOfStock());
      if (!stream->Write(note)) break;
    }
    return grpc::Status::OK;
  }

  std::atomic<bool> has_deadline{false};
  Tally started;
  Tally stopped;

 private:
  static std::string Asked(grpc::ServerContext* context, const char* key) {
    const auto found = context->client_metadata().find(key);
    return found == context->client_metadata().end()
               ? ""
               : std::string(found->second.data(), found->second.size());
  }
  static void Echo(grpc::ServerContext* context) {
    const std::string value = Asked(context, "echo-one");
    if (value.empty()) return;
    context->AddInitialMetadata("initial", value);
    context->AddTrailingMetadata("trailing", value);
  }
};

// The gateway listens on softdc.
class ReverseGatewayTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::EnableDefaultHealthCheckService(true);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&routes_);
    grpc_server_ = builder.BuildAndStart();
    ASSERT_NE(grpc_server_, nullptr);
    options_.grpc_server = absl::StrCat("127.0.0.1:", port);
    options_.listen = "127.0.0.1:0";
    options_.server.device = "softdc0";
    Point::descriptor()->file()->CopyTo(options_.descriptors.add_file());
    auto gateway = ReverseGateway::Start(options_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    ChannelOptions options;
    options.device = "softdc0";
    auto channel = Channel::Connect(absl::StrCat("127.0.0.1:", gateway_->port()), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }
  void TearDown() override {
    channel_.reset();
    gateway_.reset();
    if (grpc_server_ != nullptr) grpc_server_->Shutdown();
  }
  static CallContext Context(const std::string& key = "", const std::string& value = "") {
    CallContext context(absl::Seconds(60));
    if (key.empty()) return context;
    EXPECT_TRUE(context.AddMetadata(key, value).ok());
    return context;
  }
  static Point At(int latitude) {
    Point point;
    point.set_latitude(latitude);
    return point;
  }
  static RouteNote Note(const std::string& text) {
    RouteNote note;
    note.set_message(text);
    return note;
  }
  static void ExpectOutOfStock(const absl::Status& status) {
    EXPECT_EQ(status.code(), OutOfStock().code());
    EXPECT_EQ(status.message(), OutOfStock().message());
    EXPECT_EQ(status.GetPayload(kStockUrl), OutOfStock().GetPayload(kStockUrl));
  }
  RouteGuideClient client() { return RouteGuideClient(channel_); }

  GrpcRoutes routes_;
  std::unique_ptr<grpc::Server> grpc_server_;
  ReverseGateway::Options options_;
  std::unique_ptr<ReverseGateway> gateway_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(ReverseGatewayTest, PassesCallsOfAllFourKinds) {
  CallContext context = Context();
  const auto feature = client().GetFeature(context, At(7));
  ASSERT_TRUE(feature.ok()) << feature.status();
  EXPECT_EQ(feature->name(), "feature 7");

  Rectangle area;
  area.mutable_lo()->set_latitude(1);
  area.mutable_hi()->set_latitude(100);
  auto list = client().ListFeatures(context, area);
  Feature one;
  int count = 0;
  while (list.Read(&one)) EXPECT_EQ(one.location().latitude(), ++count);
  EXPECT_TRUE(list.Finish().ok());
  EXPECT_EQ(count, 100);

  RouteSummary summary;
  auto record = client().RecordRoute(context, &summary);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(record.Write(At(i)));
  record.WritesDone();
  EXPECT_TRUE(record.Finish().ok());
  EXPECT_EQ(summary.point_count(), 100);

  auto chat = client().RouteChat(context);
  RouteNote note;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(chat.Write(Note(absl::StrCat(i))) && chat.Read(&note));
    EXPECT_EQ(note.message(), absl::StrCat(i));
  }
  chat.WritesDone();
  EXPECT_FALSE(chat.Read(&note));
  EXPECT_TRUE(chat.Finish().ok());
}

TEST_F(ReverseGatewayTest, PassesStatusMetadataAndDeadline) {
  CallContext failing = Context("do", "fail");
  ASSERT_TRUE(failing.AddMetadata("echo-one", "a").ok());
  ExpectOutOfStock(client().GetFeature(failing, At(1)).status());
  EXPECT_EQ(failing.reply_metadata().Find("trailing"), "a");
  EXPECT_TRUE(routes_.has_deadline);

  CallContext unary = Context("echo-one", "b");
  ASSERT_TRUE(client().GetFeature(unary, At(1)).ok());
  EXPECT_EQ(unary.reply_metadata().Find("initial"), "b");
  EXPECT_EQ(unary.reply_metadata().Find("trailing"), "b");

  CallContext chatting = Context("echo-one", "c");
  auto chat = client().RouteChat(chatting);
  Metadata initial;
  ASSERT_TRUE(chat.Write(Note("a")));
  ASSERT_TRUE(chat.ReadInitialMetadata(&initial));
  EXPECT_EQ(initial.Find("initial"), "c");
  ASSERT_TRUE(chat.Write(Note("fail")));
  RouteNote note;
  while (chat.Read(&note)) {
  }
  ExpectOutOfStock(chat.Finish());
  EXPECT_EQ(chatting.reply_metadata().Find("trailing"), "c");

  CallContext without = CallContext::NoDeadline();
  ASSERT_TRUE(client().GetFeature(without, At(1)).ok());
  EXPECT_FALSE(routes_.has_deadline);
}

// While the client neither sends nor ends: nothing but the server's end can end the call.
TEST_F(ReverseGatewayTest, AnEarlyErrorReachesAClientThatStillSends) {
  CallContext context = Context();
  RouteSummary summary;
  auto record = client().RecordRoute(context, &summary);
  ASSERT_TRUE(record.Write(At(-1)));
  ExpectOutOfStock(record.Finish());
}

TEST_F(ReverseGatewayTest, ACallerThatCancelsStopsTheGrpcHandler) {
  std::stop_source stop;
  CallContext unary = Context("do", "wait");
  unary.set_stop_token(stop.get_token());
  std::thread caller(
      [&] { EXPECT_TRUE(absl::IsCancelled(client().GetFeature(unary, At(1)).status())); });
  routes_.started.WaitFor(1);
  stop.request_stop();
  caller.join();
  routes_.stopped.WaitFor(1);

  CallContext listing = Context();
  {
    auto list = client().ListFeatures(listing, Rectangle());
    Feature feature;
    ASSERT_TRUE(list.Read(&feature));
    list.Cancel();
    EXPECT_TRUE(absl::IsCancelled(list.Finish()));
  }
  routes_.stopped.WaitFor(2);

  // Half a route is not a route.
  CallContext recording = Context();
  RouteSummary summary;
  auto record = client().RecordRoute(recording, &summary);
  ASSERT_TRUE(record.Write(At(1)));
  routes_.started.WaitFor(2);
  record.Cancel();
  EXPECT_TRUE(absl::IsCancelled(record.Finish()));
  routes_.stopped.WaitFor(3);
}

TEST_F(ReverseGatewayTest, AReplyOverTheLimitOfTheClientIsNamed) {
  ChannelOptions options;
  options.device = "softdc0";
  options.limits.max_large_message_bytes = 64 << 10;
  auto channel = Channel::Connect(absl::StrCat("127.0.0.1:", gateway_->port()), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  channel_ = *std::move(channel);
  CallContext context = Context("do", "swell");
  auto list = client().ListFeatures(context, Rectangle());
  Feature feature;
  while (list.Read(&feature)) {
  }
  const absl::Status status = list.Finish();
  EXPECT_FALSE(status.ok() || absl::IsCancelled(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("65536"));
  routes_.stopped.WaitFor(1);
}

TEST_F(ReverseGatewayTest, ARequestWithAnAttachmentIsRefused) {
  constexpr std::byte kBytes[8] = {};
  CallContext unary = Context();
  unary.set_attachment(kBytes);
  const absl::Status status = client().GetFeature(unary, At(1)).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("attachment of 8 bytes"));
}

TEST_F(ReverseGatewayTest, HealthAndReflectionHaveTheNamesOfSluice) {
  CallContext context = Context();
  const auto health =
      health::v1::HealthClient(channel_).Check(context, health::v1::HealthCheckRequest());
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(health->status(), health::v1::HealthCheckResponse::SERVING);
  const reflection::v1::ReflectionClient reflection(channel_);
  const auto services = reflection.ListServices(context, reflection::v1::ListServicesRequest());
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->services(),
              ::testing::ElementsAre("grpc.health.v1.Health", "sluice.health.v1.Health",
                                     "sluice.tests.route.RouteGuide"));
  reflection::v1::FilesOfRequest request;
  request.set_service("sluice.tests.route.RouteGuide");
  const auto files = reflection.FilesOf(context, request);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_EQ(files->files_size(), 1);
  request.set_service("nothing");
  EXPECT_TRUE(absl::IsNotFound(reflection.FilesOf(context, request).status()));
}

TEST_F(ReverseGatewayTest, AGrpcServerThatIsGoneGivesUnavailable) {
  grpc_server_->Shutdown();
  grpc_server_.reset();
  CallContext context = Context();
  EXPECT_TRUE(absl::IsUnavailable(client().GetFeature(context, At(1)).status()));
}

TEST_F(ReverseGatewayTest, AServerThatDrainsCancelsWhatDoesNotEnd) {
  CallContext context = Context();
  auto chat = client().RouteChat(context);
  RouteNote note;
  ASSERT_TRUE(chat.Write(Note("a")) && chat.Read(&note));
  EXPECT_TRUE(gateway_->server()->Drain(absl::Seconds(2)).ok());
  EXPECT_FALSE(chat.Read(&note));
  EXPECT_TRUE(absl::IsUnavailable(chat.Finish()));
}

TEST_F(ReverseGatewayTest, WithoutReflectionAndDescriptorsItDoesNotStart) {
  ReverseGateway::Options options = options_;
  options.descriptors.Clear();
  const absl::Status status = ReverseGateway::Start(options).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("--descriptors"));
}

}  // namespace reverse_gateway_test
}  // namespace sluice::gateway
