// SPDX-License-Identifier: Apache-2.0
#include "tools/gateway/gateway.h"

#include <gmock/gmock.h>

#include <set>
#include <thread>
#include <vector>

#include "tests/tools/gateway/gateway_world.h"
#include "tests/tools/gateway/raw_http2_client.h"
#include "tools/gateway/grpc_health.pb.h"
#include "tools/gateway/grpc_reflection.pb.h"

namespace sluice::gateway {
namespace gateway_test {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;
using ::testing::HasSubstr;
using testing_support::Feature;
using testing_support::Point;
using testing_support::RouteNote;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";

class GatewayTest : public testing_support::GatewayWorld {
 protected:
  // Waits until a drain has begun.
  void AwaitClosedPort() {
    // The port is closed as soon as a drain has begun: then a client of its own is refused.
    // gRPC itself cancels a call that arrives at the moment at which the drain begins.
    grpc::Status refused;
    while (refused.ok() || refused.error_code() == grpc::StatusCode::CANCELLED) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto other = testing_support::RouteGuide::NewStub(
          grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", gateway_->port()),
                                    grpc::InsecureChannelCredentials(), arguments));
      grpc::ClientContext context;
      Feature feature;
      refused = other->GetFeature(&context, Point(), &feature);
    }
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE) << refused.error_message();
  }
  // A stream of any method, a step at a time. gRPC's generic client has it as operations of a queue only.
  template <typename Request, typename Reply>
  class Stream {
   public:
    Stream(const std::shared_ptr<grpc::Channel>& client, const std::string& method)
        : stub_(client), call_(stub_.PrepareCall(&context_, method, &queue_)) {
      call_->StartCall(nullptr);
      EXPECT_TRUE(Next());
    }
    bool Write(const Request& request) {
      call_->Write(request, nullptr);
      return Next();
    }
    void WritesDone() {
      call_->WritesDone(nullptr);
      EXPECT_TRUE(Next());
    }
    bool Read(Reply* reply) {
      call_->Read(reply, nullptr);
      return Next();
    }
    grpc::Status Finish() {
      grpc::Status status;
      call_->Finish(&status, nullptr);
      EXPECT_TRUE(Next());
      return status;
    }

   private:
    bool Next() {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue_.Next(&tag, &ok));
      return ok;
    }
    grpc::TemplatedGenericStub<Request, Reply> stub_;
    grpc::CompletionQueue queue_;
    grpc::ClientContext context_;
    std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Reply>> call_;
  };
};

TEST_F(GatewayTest, UnknownMethodsAreUnimplemented) {
  for (const char* method :
       {"/sluice.tests.route.RouteGuide/Fly", "/no.such.Service/Get", "/x", "//"}) {
    grpc::ClientContext context;
    Feature feature;
    const grpc::Status status = CallByName(&context, method, Point(), &feature);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_THAT(status.error_message(), HasSubstr(method));
  }
}

TEST_F(GatewayTest, WithoutReflectionAndDescriptorsTheErrorSaysWhatIsMissing) {
  Start(/*with_reflection=*/false);
  grpc::ClientContext context;
  Feature feature;
  const grpc::Status status = stub_->GetFeature(&context, Point(), &feature);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_THAT(status.error_message(), HasSubstr("--descriptors"));
}

TEST_F(GatewayTest, DescriptorsReplaceReflection) {
  Point::descriptor()->file()->CopyTo(options_.descriptors.add_file());
  Start(/*with_reflection=*/false);
  grpc::ClientContext context;
  Feature feature;
  EXPECT_TRUE(stub_->GetFeature(&context, Point(), &feature).ok());
  grpc::ClientContext health;
  HealthCheckResponse reply;
  EXPECT_TRUE(CallByName(&health, kCheck, HealthCheckRequest(), &reply).ok());
  EXPECT_EQ(reply.status(), HealthCheckResponse::SERVING);
}

TEST_F(GatewayTest, AMethodIsAskedForOnceAndAgainWhenTheServerRefusesItsKind) {
  reflection_.wrong = true;
  const auto get = [this] {
    grpc::ClientContext context;
    Feature feature;
    return stub_->GetFeature(&context, Point(), &feature).error_code();
  };
  EXPECT_EQ(get(), grpc::StatusCode::UNIMPLEMENTED);
  reflection_.wrong = false;
  EXPECT_EQ(get(), grpc::StatusCode::OK);
  EXPECT_EQ(reflection_.asked.count(), 2);
  EXPECT_EQ(get(), grpc::StatusCode::OK);
  EXPECT_EQ(reflection_.asked.count(), 2);
}

TEST_F(GatewayTest, HealthIsAnsweredUnderTheNameOfGrpc) {
  const auto check = [this](const std::string& service, HealthCheckResponse* reply) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return CallByName(&context, kCheck, request, reply).error_code();
  };
  HealthCheckResponse reply;
  EXPECT_EQ(check("", &reply), grpc::StatusCode::OK);
  EXPECT_EQ(reply.status(), HealthCheckResponse::SERVING);
  EXPECT_EQ(check("nobody", &reply), grpc::StatusCode::NOT_FOUND);
  health_.Set("nobody", HealthService::NOT_SERVING);
  EXPECT_EQ(check("nobody", &reply), grpc::StatusCode::OK);
  EXPECT_EQ(reply.status(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(GatewayTest, AWatchOfHealthDoesNotHoldUpADrain) {
  Stream<HealthCheckRequest, HealthCheckResponse> watch(client_, "/grpc.health.v1.Health/Watch");
  ASSERT_TRUE(watch.Write(HealthCheckRequest()));
  watch.WritesDone();
  HealthCheckResponse reply;
  ASSERT_TRUE(watch.Read(&reply));
  EXPECT_EQ(reply.status(), HealthCheckResponse::SERVING);
  health_.Set("", HealthService::NOT_SERVING);
  ASSERT_TRUE(watch.Read(&reply));
  EXPECT_EQ(reply.status(), HealthCheckResponse::NOT_SERVING);
  // It would wait for an hour.
  gateway_->Drain(absl::Hours(1));
  EXPECT_FALSE(watch.Read(&reply));
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GatewayTest, AReflectionStreamThatIsIdleDoesNotHoldUpADrain) {
  Stream<ServerReflectionRequest, ServerReflectionResponse> info(
      client_, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  ServerReflectionRequest request;
  ServerReflectionResponse response;
  request.set_list_services("");
  ASSERT_TRUE(info.Write(request) && info.Read(&response));
  // It would wait for an hour.
  gateway_->Drain(absl::Hours(1));
  EXPECT_FALSE(info.Read(&response));
  EXPECT_EQ(info.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GatewayTest, ACancelledOfTheHandlerIsPassedOnDuringADrain) {
  Stream<HealthCheckRequest, HealthCheckResponse> watch(client_, "/grpc.health.v1.Health/Watch");
  ASSERT_TRUE(watch.Write(HealthCheckRequest()));
  HealthCheckResponse serving;
  ASSERT_TRUE(watch.Read(&serving));
  Stream<RouteNote, RouteNote> chat(client_, "/sluice.tests.route.RouteGuide/RouteChat");
  RouteNote note;
  ASSERT_TRUE(chat.Write(Note("before")) && chat.Read(&note));
  std::thread draining([this] { gateway_->Drain(absl::Hours(1)); });
  EXPECT_FALSE(watch.Read(&serving));  // the drain has begun
  EXPECT_EQ(watch.Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(chat.Write(Note("cancel")));
  EXPECT_FALSE(chat.Read(&note));
  const grpc::Status status = chat.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(status.error_message(), "the handler's own");
  draining.join();
}

// The gateway would see its length after the last byte. The client has 1 MiB in memory, 512 times.
TEST_F(GatewayTest, AMessageThatWouldFillTheMemoryIsCutOff) {
  Stream<grpc::ByteBuffer, grpc::ByteBuffer> record(client_,
                                                    "/sluice.tests.route.RouteGuide/RecordRoute");
  const grpc::Slice nothing("");
  ASSERT_TRUE(record.Write(grpc::ByteBuffer(&nothing, 1)));
  route_.read.WaitFor(1);
  const grpc::Slice piece(std::string(1 << 20, 'x'));
  const std::vector<grpc::Slice> pieces(512, piece);
  (void)record.Write(grpc::ByteBuffer(pieces.data(), pieces.size()));
  const grpc::Status status = record.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), ::testing::Not(HasSubstr("the limit of the gateway")));
  route_.stopped.WaitFor(1);
  EXPECT_EQ(route_.ended.count(), 0);
}

// Its host has lost power, say: no reset comes.
TEST_F(GatewayTest, AClientThatAnswersNoPingStopsItsHandler) {
  options_.client_keepalive = absl::Milliseconds(100);
  Start();
  using testing_support::RawHttp2Client;
  RawHttp2Client client(gateway_->port(), "/sluice.tests.route.RouteGuide/RecordRoute");
  client.SendData(RawHttp2Client::Message("", 0));
  route_.stopped.WaitFor(1);
  EXPECT_EQ(route_.ended.count(), 0);
}

TEST_F(GatewayTest, ADrainLetsCallsEndAndRefusesNewOnes) {
  Stream<RouteNote, RouteNote> chat(client_, "/sluice.tests.route.RouteGuide/RouteChat");
  RouteNote note;
  ASSERT_TRUE(chat.Write(Note("before")));
  ASSERT_TRUE(chat.Read(&note));
  std::thread draining([this] { gateway_->Drain(absl::Hours(1)); });
  AwaitClosedPort();
  ASSERT_TRUE(chat.Write(Note("during")));
  ASSERT_TRUE(chat.Read(&note));
  EXPECT_EQ(note.message(), "during");
  chat.WritesDone();
  EXPECT_FALSE(chat.Read(&note));
  EXPECT_TRUE(chat.Finish().ok());
  draining.join();
}

TEST_F(GatewayTest, ADrainCancelsCallsThatDoNotEnd) {
  Stream<RouteNote, RouteNote> chat(client_, "/sluice.tests.route.RouteGuide/RouteChat");
  RouteNote note;
  ASSERT_TRUE(chat.Write(Note("a")));
  ASSERT_TRUE(chat.Read(&note));
  gateway_->Drain(absl::ZeroDuration());
  EXPECT_FALSE(chat.Read(&note));
  EXPECT_FALSE(chat.Finish().ok());
  route_.stopped.WaitFor(1);
}

// Clients of gRPC try another server after this code, and after no other.
TEST_F(GatewayTest, ADrainEndsCallsWithUnavailable) {
  for (const absl::Duration timeout : {absl::ZeroDuration(), -absl::InfiniteDuration()}) {
    Start();
    const int started = route_.started.count(), stopped = route_.stopped.count();
    grpc::Status unary;
    std::thread caller([this, &unary] {
      grpc::ClientContext context;
      context.AddMetadata("do", "wait");
      Feature feature;
      unary = stub_->GetFeature(&context, Point(), &feature);
    });
    route_.started.WaitFor(started + 1);
    Stream<RouteNote, RouteNote> chat(client_, "/sluice.tests.route.RouteGuide/RouteChat");
    RouteNote note;
    EXPECT_TRUE(chat.Write(Note("a")) && chat.Read(&note));
    gateway_->Drain(timeout);
    caller.join();
    EXPECT_EQ(unary.error_code(), grpc::StatusCode::UNAVAILABLE) << unary.error_message();
    EXPECT_FALSE(chat.Read(&note));
    const grpc::Status status = chat.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(status.error_message(), "the gateway shuts down");
    route_.stopped.WaitFor(stopped + 2);
  }
}

TEST_F(GatewayTest, ADrainWithoutALimitWaitsForCalls) {
  Stream<RouteNote, RouteNote> chat(client_, "/sluice.tests.route.RouteGuide/RouteChat");
  RouteNote note;
  ASSERT_TRUE(chat.Write(Note("before")) && chat.Read(&note));
  std::thread draining([this] { gateway_->Drain(absl::InfiniteDuration()); });
  AwaitClosedPort();
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(chat.Write(Note("during")) && chat.Read(&note));
  chat.WritesDone();
  EXPECT_FALSE(chat.Read(&note));
  const grpc::Status status = chat.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  draining.join();
}

TEST_F(GatewayTest, MoreCallsThanTheLimitAreRefused) {
  options_.max_calls = 2;
  Start();
  // Of two connections: a connection keeps the limit by itself, and its client waits.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto other = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", gateway_->port()),
                                               grpc::InsecureChannelCredentials(), arguments);
  const std::string method = "/sluice.tests.route.RouteGuide/RouteChat";
  Stream<RouteNote, RouteNote> one(client_, method), two(client_, method);
  RouteNote note;
  ASSERT_TRUE(one.Write(Note("a")) && one.Read(&note));
  ASSERT_TRUE(two.Write(Note("a")) && two.Read(&note));
  const auto get = [&other] {
    grpc::ClientContext context;
    Feature feature;
    return testing_support::RouteGuide::NewStub(other)->GetFeature(&context, Point(), &feature);
  };
  const grpc::Status refused = get();
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_message(), HasSubstr("2 calls are open"));
  one.WritesDone();
  EXPECT_TRUE(one.Finish().ok());
  // The place is free when the gateway has ended the call, which the client need not have seen.
  while (!get().ok()) {
  }
  two.WritesDone();
  EXPECT_TRUE(two.Finish().ok());
}

TEST_F(GatewayTest, ReflectionListsAndDescribesTheServer) {
  for (const char* version : {"v1alpha", "v1"}) {
    Stream<ServerReflectionRequest, ServerReflectionResponse> info(
        client_,
        absl::StrCat("/grpc.reflection.", version, ".ServerReflection/ServerReflectionInfo"));
    ServerReflectionRequest request;
    ServerReflectionResponse response;
    request.set_list_services("");
    ASSERT_TRUE(info.Write(request) && info.Read(&response));
    std::set<std::string> names;
    for (const auto& service : response.list_services_response().service()) {
      names.insert(service.name());
    }
    EXPECT_EQ(names, (std::set<std::string>{
                         "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection",
                         "sluice.health.v1.Health", "sluice.tests.route.RouteGuide"}));
    request.set_file_containing_symbol("sluice.tests.route.RouteGuide.GetFeature");
    ASSERT_TRUE(info.Write(request) && info.Read(&response));
    ASSERT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1);
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(response.file_descriptor_response().file_descriptor_proto(0)));
    EXPECT_EQ(file.package(), "sluice.tests.route");
    request.set_file_containing_symbol("no.such.Thing");
    ASSERT_TRUE(info.Write(request) && info.Read(&response));
    EXPECT_EQ(response.error_response().error_code(), grpc::StatusCode::NOT_FOUND);
    info.WritesDone();
    EXPECT_FALSE(info.Read(&response));
    EXPECT_TRUE(info.Finish().ok());
  }
}

TEST_F(GatewayTest, WrongOptionsAreRefused) {
  const auto start = [this](const auto& change) {
    Gateway::Options options;
    options.listen = "127.0.0.1:0";
    change(options);
    return Gateway::Start(*world_->NewChannel(), options).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(start([](auto& o) { o.max_calls = 0; })));
  EXPECT_TRUE(absl::IsInvalidArgument(start([](auto& o) { o.max_message_bytes = 1023; })));
  EXPECT_TRUE(
      absl::IsInvalidArgument(start([](auto& o) { o.client_keepalive = absl::ZeroDuration(); })));
  EXPECT_TRUE(absl::IsInvalidArgument(start([](auto& o) { o.tls_key = "x"; })));
  EXPECT_TRUE(absl::IsInvalidArgument(start([](auto& o) { o.tls_client_authority = "x"; })));
  EXPECT_TRUE(absl::IsUnavailable(start([](auto& o) { o.tls_key = o.tls_certificate = "x"; })));
  // Of two gateways at one port the second is refused.
  const absl::Status used =
      start([this](auto& o) { o.listen = absl::StrCat("127.0.0.1:", gateway_->port()); });
  EXPECT_TRUE(absl::IsUnavailable(used)) << used;
  EXPECT_THAT(std::string(used.message()), HasSubstr("gRPC does not listen at 127.0.0.1"));
}

}  // namespace gateway_test
}  // namespace sluice::gateway
