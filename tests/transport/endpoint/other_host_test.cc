// SPDX-License-Identifier: Apache-2.0
//
// "auto" on a host with an mlx5 device that this process may not open: the software NIC, which reaches this
// host only.
#include <cerrno>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transport/endpoint/endpoint_pair.h"

namespace sluice::endpoint {
namespace other_host_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const verbs::VerbsApi& Denied() {
  static const verbs::VerbsApi table = [] {
    verbs::VerbsApi api = softdc::Verbs();
    api.name = "native";
    api.get_device_name = [](ibv_device*) { return "mlx5_0"; };
    api.open_device = [](ibv_device*) -> ibv_context* {
      errno = EACCES;
      return nullptr;
    };
    return api;
  }();
  return table;
}

struct Log final : base::LogSink {
  void Write(const base::LogRecord& record) override {
    if (record.severity != base::Severity::kWarning) return;
    events.emplace_back(record.event);
    messages.emplace_back(record.message);
  }
  std::vector<std::string> events, messages;
};

class OtherHost : public testing::Test {
 protected:
  absl::Status WhyNot(const std::string& host) {
    auto opened = device::Device::Open("auto", {&Denied(), &softdc::Verbs()});
    if (!opened.ok()) return opened.status();
    const std::unique_ptr<device::Device> device = *std::move(opened);
    Recorder recorder;
    Options options;
    options.log = &log_;
    auto created = CreateEndpoint(options, *device, clock_, random_, commands_, &recorder);
    if (!created.ok()) return created.status();
    const auto peer = (*created)->Connect(host, 7471, clock_.NowNs() + 60'000'000'000);
    if (!peer.ok()) return peer.status();
    while (recorder.downs.empty()) (*created)->Poll();
    return recorder.downs[0].why;
  }

  base::RealClock clock_;
  base::SystemRandom random_;
  poller::ThreadCommands commands_;
  Log log_;
};

TEST_F(OtherHost, ConnectSaysWhyTheDeviceDoesNotReachIt) {
  const absl::Status why = WhyNot("192.0.2.1");
  EXPECT_EQ(why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(why.message()), HasSubstr("softdc0 does not reach other hosts"));
  EXPECT_THAT(std::string(why.message()), HasSubstr("mlx5_0: can't be opened"));
  EXPECT_THAT(std::string(why.message()), HasSubstr("EACCES"));
}

TEST_F(OtherHost, LogSaysThatTheDeviceWasPassedOver) {
  WhyNot("192.0.2.1").IgnoreError();
  EXPECT_THAT(log_.events, ElementsAre("device passed over"));
  EXPECT_THAT(log_.messages, ElementsAre(HasSubstr("mlx5_0: can't be opened")));
}

TEST_F(OtherHost, ThisHostIsStillReached) {
  EXPECT_THAT(std::string(WhyNot("127.0.0.1").message()), HasSubstr("no process listens"));
}

}  // namespace other_host_test
}  // namespace sluice::endpoint
