// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/reflection_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "examples/echo/echo_service.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "middleware/api/in_process.h"
#include "middleware/services/health_service.h"

namespace sluice {
namespace reflection_service_test {

using reflection::v1::FilesOfRequest;
using reflection::v1::ListServicesRequest;
using reflection::v1::ReflectionClient;

// A service needs its server before it is registered there: InProcess makes both at once, so this asks another one.
class ReflectionServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto described = InProcess::Start({&health_, &echo_});
    ASSERT_TRUE(described.ok()) << described.status();
    described_ = *std::move(described);
    reflection_ = std::make_unique<ReflectionService>(&described_->server());
    auto world = InProcess::Start({reflection_.get()});
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    auto channel = world_->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }

  HealthService health_;
  examples::echo::EchoService echo_;
  std::unique_ptr<InProcess> described_;
  std::unique_ptr<ReflectionService> reflection_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(ReflectionServiceTest, ListsServicesInOrder) {
  CallContext context(absl::Seconds(60));
  const auto reply = ReflectionClient(channel_).ListServices(context, ListServicesRequest());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(std::vector<std::string>(reply->services().begin(), reply->services().end()),
            (std::vector<std::string>{"sluice.examples.echo.Echo", "sluice.health.v1.Health"}));
}

TEST_F(ReflectionServiceTest, FilesAreEnoughToBuildTheService) {
  CallContext context(absl::Seconds(60));
  FilesOfRequest request;
  request.set_service("sluice.health.v1.Health");
  const auto reply = ReflectionClient(channel_).FilesOf(context, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  google::protobuf::DescriptorPool pool;
  for (const std::string& bytes : reply->files()) {
    google::protobuf::FileDescriptorProto file;
    ASSERT_TRUE(file.ParseFromString(bytes));
    ASSERT_NE(pool.BuildFile(file), nullptr);
  }
  const auto* service = pool.FindServiceByName("sluice.health.v1.Health");
  ASSERT_NE(service, nullptr);
  EXPECT_TRUE(service->FindMethodByName("Watch")->server_streaming());
}

TEST_F(ReflectionServiceTest, UnknownServiceIsAnErrorThatNamesTheKnown) {
  CallContext context(absl::Seconds(60));
  FilesOfRequest request;
  request.set_service("sluice.Nothing");
  const auto reply = ReflectionClient(channel_).FilesOf(context, request);
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(reply.status().message()).find("sluice.examples.echo.Echo"),
            std::string::npos);
}

}  // namespace reflection_service_test
}  // namespace sluice
