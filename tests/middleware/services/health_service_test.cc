// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/health_service.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "middleware/api/in_process.h"

namespace sluice {
namespace health_service_test {

using health::v1::HealthCheckRequest;
using health::v1::HealthCheckResponse;
using health::v1::HealthClient;

class HealthServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto world = InProcess::Start({&health_});
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    auto channel = world_->NewChannel();
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *channel;
  }
  HealthClient client() { return HealthClient(channel_); }
  static HealthCheckRequest Of(const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    return request;
  }

  HealthService health_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
};

TEST_F(HealthServiceTest, CheckSaysWhatWasSet) {
  CallContext context(absl::Seconds(60));
  EXPECT_EQ(client().Check(context, Of(""))->status(), HealthService::SERVING);
  EXPECT_EQ(client().Check(context, Of("shop")).status().code(), absl::StatusCode::kNotFound);
  health_.Set("shop", HealthService::NOT_SERVING);
  EXPECT_EQ(client().Check(context, Of("shop"))->status(), HealthService::NOT_SERVING);
  health_.SetAll(HealthService::NOT_SERVING);
  EXPECT_EQ(client().Check(context, Of(""))->status(), HealthService::NOT_SERVING);
}

TEST_F(HealthServiceTest, WatchSaysEachChange) {
  CallContext context(absl::Seconds(60));
  auto watch = client().Watch(context, Of("shop"));
  HealthCheckResponse response;
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);
  for (int i = 0; i < 50; ++i) {
    const auto status = i % 2 == 0 ? HealthService::SERVING : HealthService::NOT_SERVING;
    health_.Set("other", status);  // is nothing to them
    health_.Set("shop", status);
    ASSERT_TRUE(watch.Read(&response));
    EXPECT_EQ(response.status(), status);
  }
  watch.Cancel();
  EXPECT_EQ(watch.Finish().code(), absl::StatusCode::kCancelled);
}

TEST_F(HealthServiceTest, DrainTellsWhoWatchesAndEndsTheWatch) {
  health_.Set("down", HealthService::NOT_SERVING);
  CallContext context(absl::Seconds(60));
  auto watch = client().Watch(context, Of(""));
  auto of_one_that_is_down = client().Watch(context, Of("down"));
  HealthCheckResponse response;
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_EQ(response.status(), HealthService::SERVING);
  ASSERT_TRUE(of_one_that_is_down.Read(&response));
  // Watches don't hold it up: it returns long before its time is over, or this test with it.
  EXPECT_TRUE(world_->server().Drain(absl::Hours(1)).ok());
  EXPECT_EQ(world_->server().drain_phase(), call::DrainPhase::kDrained);
  ASSERT_TRUE(watch.Read(&response));
  EXPECT_EQ(response.status(), HealthService::NOT_SERVING);
  EXPECT_FALSE(watch.Read(&response));
  EXPECT_EQ(watch.Finish().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(of_one_that_is_down.Read(&response)) << "it may have been said again";
}

TEST_F(HealthServiceTest, WatchersAreToldFromAnyThreadAndMayLeave) {
  std::atomic<bool> over{false};
  std::thread setter([&] {
    for (int i = 0; !over; ++i) {
      health_.Set("shop", i % 2 == 0 ? HealthService::SERVING : HealthService::NOT_SERVING);
    }
  });
  for (int i = 0; i < 30; ++i) {
    CallContext context(absl::Seconds(60));
    auto watch = client().Watch(context, Of("shop"));
    HealthCheckResponse response;
    for (int j = 0; j < i % 4; ++j) ASSERT_TRUE(watch.Read(&response));
  }
  over = true;
  setter.join();
  channel_.reset();
  EXPECT_TRUE(world_->server().Shutdown(absl::Seconds(60)).ok());
  EXPECT_EQ(world_->server().counters().calls_under_way, 0u);
}

}  // namespace health_service_test
}  // namespace sluice
