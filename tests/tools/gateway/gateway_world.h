// SPDX-License-Identifier: Apache-2.0
//
// GatewayWorld: RouteService at a Sluice server in this process, a gateway in front of it, and gRPC's own client.
//
// Ownership     The test, whose fixture it is.
// Threads       That of the test.
#ifndef SLUICE_TESTS_TOOLS_GATEWAY_GATEWAY_WORLD_H_
#define SLUICE_TESTS_TOOLS_GATEWAY_GATEWAY_WORLD_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "middleware/api/in_process.h"
#include "middleware/services/health_service.h"
#include "proto/reflection.sluice.h"
#include "tests/tools/gateway/route_guide.grpc.pb.h"
#include "tests/tools/gateway/route_service.h"
#include "tools/gateway/gateway.h"

namespace sluice::testing_support {

using tests::route::RouteGuide;

// A reflection service that needs no server.
class RouteReflection final : public reflection::v1::ReflectionServiceBase {
 public:
  absl::Status ListServices(ServerContext&, const reflection::v1::ListServicesRequest&,
                            reflection::v1::ListServicesResponse* reply) override {
    reply->add_services("sluice.tests.route.RouteGuide");
    reply->add_services("sluice.health.v1.Health");
    return absl::OkStatus();
  }
  absl::Status FilesOf(ServerContext&, const reflection::v1::FilesOfRequest& request,
                       reflection::v1::FilesOfResponse* reply) override {
    asked.Add();
    const auto* const service =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(request.service());
    if (service == nullptr || request.service() == "grpc.health.v1.Health") {
      return absl::NotFoundError("no such service");
    }
    google::protobuf::FileDescriptorProto file;
    service->file()->CopyTo(&file);
    for (auto& one : *file.mutable_service()) {
      for (auto& method : *one.mutable_method()) {
        if (wrong && method.name() == "GetFeature") method.set_client_streaming(true);
      }
    }
    reply->add_files(file.SerializeAsString());
    return absl::OkStatus();
  }
  Tally asked;
  std::atomic<bool> wrong{false};  // it says that GetFeature is a stream
};

class GatewayWorld : public ::testing::Test {
 protected:
  // A fixture may change `options_` and `channel_options_` before.
  void Start(bool with_reflection = true) {
    gateway_.reset();
    world_.reset();
    std::vector<Service*> services = {&route_, &health_};
    if (with_reflection) services.push_back(&reflection_);
    auto world = InProcess::Start(services);
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    auto channel = world_->NewChannel(channel_options_);
    ASSERT_TRUE(channel.ok()) << channel.status();
    options_.listen = "127.0.0.1:0";
    auto gateway = gateway::Gateway::Start(*std::move(channel), options_);
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = *std::move(gateway);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    client_ = grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", gateway_->port()),
                                        grpc::InsecureChannelCredentials(), arguments);
    stub_ = RouteGuide::NewStub(client_);
  }
  void SetUp() override { Start(); }
  void TearDown() override {
    stub_.reset();
    client_.reset();
    gateway_.reset();
    world_.reset();
  }

  static Point At(int latitude) {
    Point point;
    point.set_latitude(latitude);
    return point;
  }
  static Rectangle Between(int lo, int hi) {
    Rectangle rectangle;
    rectangle.mutable_lo()->set_latitude(lo);
    rectangle.mutable_hi()->set_latitude(hi);
    return rectangle;
  }
  static RouteNote Note(const std::string& text) {
    RouteNote note;
    note.set_message(text);
    return note;
  }

  // Any method, by name.
  template <typename Request, typename Reply>
  grpc::Status CallByName(grpc::ClientContext* context, const std::string& method,
                          const Request& request, Reply* reply) {
    grpc::TemplatedGenericStub<Request, Reply> stub(client_);
    std::promise<grpc::Status> ended;
    stub.UnaryCall(context, method, grpc::StubOptions(), &request, reply,
                   [&ended](grpc::Status status) { ended.set_value(std::move(status)); });
    return ended.get_future().get();
  }

  RouteService route_;
  HealthService health_;
  RouteReflection reflection_;
  ChannelOptions channel_options_;
  gateway::Gateway::Options options_;
  std::unique_ptr<InProcess> world_;
  std::unique_ptr<gateway::Gateway> gateway_;
  std::shared_ptr<grpc::Channel> client_;
  std::unique_ptr<RouteGuide::Stub> stub_;
};

}  // namespace sluice::testing_support

#endif  // SLUICE_TESTS_TOOLS_GATEWAY_GATEWAY_WORLD_H_
