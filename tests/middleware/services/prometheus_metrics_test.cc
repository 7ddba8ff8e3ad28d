// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/prometheus_metrics.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "examples/echo/echo_service.h"
#include "middleware/api/in_process.h"
#include "tests/support/kept_log.h"

namespace sluice {
namespace prometheus_metrics_test {

// A connection; -1: nobody listens there.
int Open(const char* host, uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  close(fd);
  return -1;
}

// GET /metrics at `host`:`port`; empty: nobody is there.
std::string Scrape(const char* host, uint16_t port) {
  const int fd = Open(host, port);
  if (fd < 0) return "";
  std::string text;
  const std::string request = "GET /metrics HTTP/1.0\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(write(fd, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  char part[4096];
  for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

// The other side has not closed it.
bool IsOpen(int fd) {
  char byte = 0;
  return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

// Sample by what stands before the value; checks the grammar of each line on the way.
std::map<std::string, double> Parse(const std::string& text) {
  std::map<std::string, double> samples;
  std::set<std::string> typed;
  const size_t body = text.find("\r\n\r\n");
  EXPECT_NE(body, std::string::npos) << text;
  if (body == std::string::npos) return samples;
  for (const auto line : absl::StrSplit(text.substr(body + 4), '\n')) {
    if (line.empty() || line[0] == '#') {
      const std::vector<std::string> words = absl::StrSplit(line, ' ');
      // The exposer tells of itself too.
      if (words.size() >= 4 && words[1] == "TYPE" && words[2].substr(0, 8) != "exposer_") {
        EXPECT_TRUE(typed.insert(words[2]).second) << line;
        EXPECT_EQ(words[2].substr(0, 7), "sluice_");
        const bool total = words[2].size() > 6 && words[2].substr(words[2].size() - 6) == "_total";
        EXPECT_EQ(total, words[3] == "counter") << line;
      }
      continue;
    }
    const size_t space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(samples.emplace(std::string(line.substr(0, space)), value).second) << line;
  }
  return samples;
}

constexpr char kSay[] = "method=\"/sluice.examples.echo.Echo/Say\"";

class PrometheusMetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto world = InProcess::Start({&echo_});
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    channel_ = *world_->NewChannel();
    metrics_ = std::make_shared<PrometheusMetrics>(absl::Seconds(60));
    metrics_->Add(&world_->server(), "orders");
    metrics_->Add(channel_, "to_orders");
    for (int i = 0; i < 3; ++i) {
      CallContext context(absl::Seconds(60));
      ASSERT_TRUE(examples::echo::EchoClient(channel_).Say(context, {}).ok());
    }
  }

  examples::echo::EchoService echo_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
  std::shared_ptr<PrometheusMetrics> metrics_;
};

TEST_F(PrometheusMetricsTest, ScrapeIsParsedAndTellsOfCalls) {
  auto exposer = MetricsExposer::Start("0", metrics_);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  auto samples = Parse(Scrape("127.0.0.1", (*exposer)->port()));
  const std::string server = absl::StrCat("{server=\"orders\",", kSay);
  const std::string channel = absl::StrCat("{channel=\"to_orders\",", kSay);
  EXPECT_EQ(samples["sluice_server_calls_started_total" + server + "}"], 3);
  EXPECT_EQ(samples["sluice_server_calls_ended_total" + server + ",code=\"OK\"}"], 3);
  EXPECT_EQ(samples["sluice_server_calls_in_flight" + server + "}"], 0);
  EXPECT_EQ(samples["sluice_channel_calls_ended_total" + channel + ",code=\"OK\"}"], 3);
  EXPECT_EQ(samples["sluice_server_peers{server=\"orders\"}"], 1);
  EXPECT_EQ(samples["sluice_server_fresh{server=\"orders\"}"], 1);
  EXPECT_EQ(samples["sluice_channel_up{channel=\"to_orders\"}"], 1);
  const std::string histogram = "sluice_server_call_duration_seconds";
  const double count = samples[histogram + "_count" + server + "}"];
  EXPECT_GE(count, 1);
  EXPECT_EQ(samples[histogram + "_bucket" + server + ",le=\"+Inf\"}"], count);
  EXPECT_GT(samples[histogram + "_sum" + server + "}"], 0);
}

TEST_F(PrometheusMetricsTest, ListensAtLoopbackUnlessItIsToldAnAddress) {
  auto loopback = MetricsExposer::Start("0", metrics_);
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_NE(Scrape("127.0.0.1", (*loopback)->port()), "");
  EXPECT_EQ(Scrape("127.0.0.2", (*loopback)->port()), "");
  auto everywhere = MetricsExposer::Start("0.0.0.0:0", metrics_);
  ASSERT_TRUE(everywhere.ok()) << everywhere.status();
  EXPECT_NE(Scrape("127.0.0.2", (*everywhere)->port()), "");
}

TEST_F(PrometheusMetricsTest, WrongAddressesAreErrors) {
  for (const char* address : {"", "nonsense", "127.0.0.1:", "70000", "127.0.0.1:x"}) {
    EXPECT_EQ(MetricsExposer::Start(address, metrics_).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
  auto first = MetricsExposer::Start("0", metrics_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = MetricsExposer::Start(absl::StrCat((*first)->port()), metrics_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
}

// One worker serves the scrape while the others wait for the requests of connections that send none.
TEST_F(PrometheusMetricsTest, ScrapeIsAnsweredWhileOtherConnectionsAreIdle) {
  ExposerOptions options;
  options.request_timeout = absl::Hours(1);
  auto exposer = MetricsExposer::Start("0", metrics_, options);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  const uint16_t port = (*exposer)->port();
  std::vector<int> idle;
  for (int i = 0; i < options.workers - 1; ++i) idle.push_back(Open("127.0.0.1", port));
  EXPECT_EQ(Parse(Scrape("127.0.0.1", port))["sluice_server_fresh{server=\"orders\"}"], 1);
  for (const int fd : idle) {
    EXPECT_TRUE(IsOpen(fd));
    close(fd);
  }
}

// More idle connections than workers: the scrape waits until the server has closed as many as it needs.
TEST_F(PrometheusMetricsTest, IdleConnectionsAreClosedAfterTheTimeout) {
  ExposerOptions options;
  options.workers = 2;
  options.request_timeout = absl::Milliseconds(20);
  auto exposer = MetricsExposer::Start("0", metrics_, options);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  const uint16_t port = (*exposer)->port();
  std::vector<int> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(Open("127.0.0.1", port));
  EXPECT_EQ(Parse(Scrape("127.0.0.1", port))["sluice_server_fresh{server=\"orders\"}"], 1);
  EXPECT_FALSE(IsOpen(idle[0]));
  for (const int fd : idle) close(fd);
}

TEST_F(PrometheusMetricsTest, OptionsOutOfRangeAreNamed) {
  ExposerOptions options;
  options.workers = 0;
  const absl::Status none = MetricsExposer::Start("0", metrics_, options).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(none.message().find("option workers is 0"), absl::string_view::npos) << none;
  options = {};
  options.request_timeout = absl::InfiniteDuration();
  const absl::Status never = MetricsExposer::Start("0", metrics_, options).status();
  EXPECT_EQ(never.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(never.message().find("option request_timeout is inf"), absl::string_view::npos)
      << never;
}

TEST_F(PrometheusMetricsTest, WhatElseIsCountedIsTold) {
  bulk::PortCounters counters;
  counters.pieces = 9;
  metrics_->Add([counters] { return ReadCounters(counters); }, "pictures");
  auto exposer = MetricsExposer::Start("0", metrics_);
  ASSERT_TRUE(exposer.ok()) << exposer.status();
  auto samples = Parse(Scrape("127.0.0.1", (*exposer)->port()));
  EXPECT_EQ(samples["sluice_bulk_pieces_total{source=\"pictures\"}"], 9);
}

TEST_F(PrometheusMetricsTest, SourceThatThrowsIsLoggedAndTheOthersAreTold) {
  const auto log = std::make_shared<testing_support::KeptLog>();
  const auto metrics = std::make_shared<PrometheusMetrics>(absl::Seconds(60), log);
  bulk::PortCounters counters;
  counters.pieces = 9;
  const auto good = [counters] { return ReadCounters(counters); };
  metrics->Add(good, "a picture");
  metrics->Add([]() -> std::vector<Reading> { throw std::runtime_error("out of order"); },
               "broken");
  metrics->Add([]() -> std::vector<Reading> { throw 7; }, "number");
  metrics->Add(good, "pictures");
  {
    auto exposer = MetricsExposer::Start("0", metrics);
    ASSERT_TRUE(exposer.ok()) << exposer.status();
    const std::string text = Scrape("127.0.0.1", (*exposer)->port());
    auto samples = Parse(text);
    EXPECT_EQ(samples["sluice_bulk_pieces_total{source=\"a picture\"}"], 9);
    EXPECT_EQ(samples["sluice_bulk_pieces_total{source=\"pictures\"}"], 9);
    EXPECT_EQ(text.find("broken"), std::string::npos);
  }
  ASSERT_EQ(log->size(), 2u);
  EXPECT_EQ((*log)[0].severity, base::Severity::kError);
  EXPECT_EQ((*log)[0].event, "exception");
  EXPECT_EQ((*log)[0].message, "counter source \"broken\" threw an exception: out of order");
  EXPECT_EQ((*log)[1].message,
            "counter source \"number\" threw an exception: the exception is no std::exception");
}

TEST_F(PrometheusMetricsTest, WhatIsTakenOutIsNotTold) {
  metrics_->Add([] { return ReadCounters(bulk::PortCounters()); }, "pictures");
  metrics_->Remove("pictures");
  metrics_->Remove("orders");
  metrics_->Remove("to_orders");
  metrics_->Remove("nobody");
  EXPECT_TRUE(metrics_->Collect().empty());
}

}  // namespace prometheus_metrics_test
}  // namespace sluice
