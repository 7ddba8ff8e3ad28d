// SPDX-License-Identifier: Apache-2.0
#include "middleware/services/http_pages.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "examples/echo/echo_service.h"
#include "google/protobuf/util/json_util.h"
#include "google/protobuf/util/message_differencer.h"
#include "middleware/api/in_process.h"
#include "middleware/services/introspection_service.h"
#include "middleware/services/prometheus_metrics.h"
#include "proto/status_page.pb.h"
#include "tests/support/in_child.h"

namespace sluice {
namespace http_pages_test {

using status_page::v1::ServerStatus;
using status_page::v1::Status;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kToken[] = "an-operators-token-of-32-letters";
constexpr char kRedToken[] = "the-token-of-tenant-red-readers";

int Open(uint16_t port, int receive_buffer = 0) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (receive_buffer > 0) {
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return fd;
  ADD_FAILURE() << "not connected";
  close(fd);
  return -1;
}

void Send(int fd, const std::string& text) {
  EXPECT_EQ(send(fd, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
}

std::string ReadAll(int fd) {
  std::string text;
  char part[65536];
  for (ssize_t got = 0; (got = read(fd, part, sizeof(part))) > 0;) {
    text.append(part, static_cast<size_t>(got));
  }
  close(fd);
  return text;
}

// What the server answers to these bytes.
std::string Exchange(uint16_t port, const std::string& request) {
  const int fd = Open(port);
  Send(fd, request);
  return ReadAll(fd);
}

std::string Get(uint16_t port, const std::string& path, const std::string& token = "") {
  return Exchange(
      port, absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: localhost\r\n",
                         token.empty() ? "" : "Authorization: Bearer " + token + "\r\n", "\r\n"));
}

int CodeOf(const std::string& reply) {
  return reply.size() < 12 ? 0 : std::atoi(reply.substr(9, 3).c_str());
}

std::string BodyOf(const std::string& reply) {
  const size_t at = reply.find("\r\n\r\n");
  return at == std::string::npos ? "" : reply.substr(at + 4);
}

template <typename Message>
Message Parse(const std::string& reply) {
  Message message;
  EXPECT_EQ(CodeOf(reply), 200) << reply;
  const auto status = google::protobuf::util::JsonStringToMessage(BodyOf(reply), &message);
  EXPECT_TRUE(status.ok()) << status << "\n" << reply;
  return message;
}

std::string TokenFile(const std::string& name, const std::string& token, mode_t mode = 0600) {
  const std::string path = ::testing::TempDir() + "/" + name;
  std::ofstream(path) << "# tokens\n" << token << "\n";
  EXPECT_EQ(chmod(path.c_str(), mode), 0);
  return path;
}

class HttpPagesTest : public ::testing::Test {
 protected:
  void Start(PagesOptions options = {}) {
    auto world = InProcess::Start({&echo_});
    ASSERT_TRUE(world.ok()) << world.status();
    world_ = *std::move(world);
    channel_ = *world_->NewChannel();
    if (options.patience == PagesOptions().patience) options.patience = absl::Seconds(10);
    auto pages = HttpPages::Start("0", options);
    ASSERT_TRUE(pages.ok()) << pages.status();
    pages_ = *std::move(pages);
    pages_->Add(&world_->server(), "orders", {});
    pages_->Add(channel_, "to_orders");
    for (int i = 0; i < 3; ++i) {
      CallContext context(absl::Seconds(60));
      ASSERT_TRUE(examples::echo::EchoClient(channel_).Say(context, {}).ok());
    }
  }
  uint16_t port() const { return pages_->port(); }

  examples::echo::EchoService echo_;
  std::unique_ptr<InProcess> world_;
  std::shared_ptr<Channel> channel_;
  std::unique_ptr<HttpPages> pages_;
};

TEST_F(HttpPagesTest, MayBeDestroyedInAForkedChildAndGoOnInTheParent) {
  Start();
  testing_support::InChild([&] {
    pages_->Add([] { return std::vector<Reading>(); }, "of_the_child");
    pages_->Remove("orders");
    EXPECT_EQ(pages_->looks(), 0u);
    pages_.reset();
  });
  EXPECT_EQ(Parse<Status>(Get(port(), "/status.json")).servers_size(), 1);
}

TEST_F(HttpPagesTest, StatusHasCallsPeersAndCapabilities) {
  Start();
  const Status status = Parse<Status>(Get(port(), "/status.json"));
  ASSERT_EQ(status.servers_size(), 1);
  const ServerStatus& server = status.servers(0);
  EXPECT_EQ(server.name(), "orders");
  EXPECT_TRUE(server.fresh());
  EXPECT_EQ(server.withheld(), "");
  ASSERT_EQ(server.look().methods_size(), 1);
  EXPECT_EQ(server.look().methods(0).started(), 3u);
  EXPECT_GT(server.look().methods(0).latencies_size(), 0);
  ASSERT_EQ(server.look().peers_size(), 1);
  EXPECT_EQ(server.look().peers(0).state(), "up");
  EXPECT_GT(server.look().capabilities_size(), 0);
  EXPECT_GT(server.look().counts_size(), 0);
  EXPECT_GT(server.events_size(), 0);
  ASSERT_EQ(status.channels_size(), 1);
  EXPECT_EQ(status.channels(0).state(), "up");
  EXPECT_EQ(status.channels(0).methods(0).started(), 3u);
  EXPECT_GT(status.process().resident_bytes(), 0u);
  EXPECT_GT(status.process().threads(), 0u);
}

// sluice_stat and the page show the same: both come from the same function.
TEST_F(HttpPagesTest, StatusEqualsWhatTheIntrospectionServiceReplies) {
  Start();
  IntrospectionService service(&world_->server(), {}, absl::Seconds(60));
  auto asked = InProcess::Start({&service});
  ASSERT_TRUE(asked.ok()) << asked.status();
  CallContext context(absl::Seconds(60));
  auto told = introspection::v1::IntrospectionClient(*(*asked)->NewChannel()).Look(context, {});
  ASSERT_TRUE(told.ok()) << told.status();
  Status status = Parse<Status>(Get(port(), "/status.json"));
  introspection::v1::LookReply* look = status.mutable_servers(0)->mutable_look();
  look->set_time_ns(told->time_ns());
  std::string difference;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&difference);
  EXPECT_TRUE(differencer.Compare(*told, *look)) << difference;
}

TEST_F(HttpPagesTest, ThePageNeedsNothingFromElsewhere) {
  Start();
  const std::string reply = Get(port(), "/");
  EXPECT_EQ(CodeOf(reply), 200);
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/html"));
  EXPECT_THAT(reply, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(reply, HasSubstr("prefers-color-scheme: dark"));
  EXPECT_THAT(reply, Not(HasSubstr("@NONCE@")));
  std::string body = BodyOf(reply);
  for (size_t at = 0; (at = body.find("://", at)) != std::string::npos; ++at) {
    EXPECT_EQ(body.substr(at - 4, 17), "http://www.w3.org") << body.substr(at, 60);
  }
  EXPECT_NE(body, BodyOf(Get(port(), "/")));  // a number of its own
}

TEST_F(HttpPagesTest, MetricsAreThoseOfPrometheusMetrics) {
  Start();
  const std::string reply = Get(port(), "/metrics");
  EXPECT_EQ(CodeOf(reply), 200);
  EXPECT_THAT(reply, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(reply,
              HasSubstr("sluice_server_calls_started_total{server=\"orders\",method=\"/sluice."
                        "examples.echo.Echo/Say\"} 3"));
  EXPECT_THAT(reply, HasSubstr("sluice_channel_up{channel=\"to_orders\"} 1"));
}

TEST_F(HttpPagesTest, HealthIsOkWhilePollingThreadsAnswer) {
  Start();
  EXPECT_EQ(BodyOf(Get(port(), "/healthz")), "ok\n");
}

// Its loop belongs to the program, and does not poll.
TEST(HttpPagesHealthTest, ServerWhosePollingThreadDoesNotAnswerIsUnwell) {
  ServerOptions options;
  options.driving = Driving::kCaller;
  auto server = Server::Create(options);
  ASSERT_TRUE(server.ok()) << server.status();
  ASSERT_TRUE((*server)->Listen("127.0.0.1:0").ok());
  PagesOptions pages_options;
  pages_options.patience = absl::Milliseconds(1);
  auto pages = HttpPages::Start("0", pages_options);
  ASSERT_TRUE(pages.ok()) << pages.status();
  (*pages)->Add(server->get(), "idle", options);
  std::string reply;
  std::thread asker([&] { reply = Get((*pages)->port(), "/healthz"); });
  asker.join();
  EXPECT_EQ(CodeOf(reply), 503) << reply;
  const Status status = Parse<Status>(Get((*pages)->port(), "/status.json"));
  EXPECT_FALSE(status.servers(0).fresh());
}

TEST_F(HttpPagesTest, ConfigHasOptionsAndNoSecrets) {
  Start();
  ServerOptions options;
  options.limits.receive_buffers = 2048;
  options.authentication.secret_file = "/etc/orders/the-secret-file";
  pages_->Add(&world_->server(), "guarded", options);
  const std::string reply = Get(port(), "/config");
  EXPECT_THAT(reply, Not(HasSubstr("the-secret-file")));
  const auto config = Parse<status_page::v1::Config>(reply);
  ASSERT_EQ(config.servers_size(), 2);
  EXPECT_EQ(config.servers(0).name(), "guarded");
  EXPECT_EQ(config.servers(0).authentication(), "from a file");
  std::string value, standard;
  for (const auto& setting : config.servers(0).settings()) {
    if (setting.name() != "limits.receive_buffers") continue;
    value = setting.value();
    standard = setting.default_value();
  }
  EXPECT_EQ(value, "2048");
  EXPECT_EQ(standard, "1024");
}

TEST_F(HttpPagesTest, WrongStartsAreErrors) {
  Start();
  for (const char* address : {"", "nonsense", "127.0.0.1:", "70000", "127.0.0.1:x"}) {
    EXPECT_EQ(HttpPages::Start(address).status().code(), absl::StatusCode::kInvalidArgument)
        << address;
  }
  const absl::Status in_use = HttpPages::Start(absl::StrCat(port())).status();
  EXPECT_EQ(in_use.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(in_use.message()),
              HasSubstr(absl::StrCat("status pages not started at 127.0.0.1:", port())));
  EXPECT_THAT(std::string(in_use.message()), HasSubstr("the port is in use"));
}

TEST_F(HttpPagesTest, OptionsOutOfRangeAreNamed) {
  const auto named = [](auto change) {
    PagesOptions options;
    change(&options);
    const absl::Status status = HttpPages::Start("0", options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(named([](PagesOptions* o) { o->workers = 0; }), HasSubstr("option workers is 0"));
  EXPECT_THAT(named([](PagesOptions* o) { o->max_request_bytes = 10; }),
              HasSubstr("option max_request_bytes is 10"));
  EXPECT_THAT(named([](PagesOptions* o) { o->request_timeout = absl::InfiniteDuration(); }),
              HasSubstr("option request_timeout is inf"));
  EXPECT_THAT(named([](PagesOptions* o) { o->refresh = absl::ZeroDuration(); }),
              HasSubstr("option refresh is 0"));
  EXPECT_THAT(named([](PagesOptions* o) { o->patience = absl::Hours(1); }),
              HasSubstr("option patience is 1h"));
}

TEST_F(HttpPagesTest, RequestsThatAreNotForPagesAreRefused) {
  Start();
  EXPECT_EQ(CodeOf(Get(port(), "/nothing")), 404);
  EXPECT_EQ(CodeOf(Get(port(), "/../../etc/passwd")), 404);
  EXPECT_EQ(CodeOf(Exchange(port(), "POST /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")), 405);
  EXPECT_EQ(CodeOf(Exchange(port(),
                            "GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello")),
            413);
  EXPECT_EQ(CodeOf(Exchange(port(), "garbage\r\n\r\n")), 400);
  EXPECT_NE(CodeOf(Exchange(port(), std::string(64, '\0') + "\r\n\r\n")), 200);
  const std::string head = Exchange(port(), "HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(CodeOf(head), 200);
  EXPECT_EQ(BodyOf(head), "");
  EXPECT_EQ(CodeOf(Get(port(), "/healthz")), 200);  // it goes on
}

TEST_F(HttpPagesTest, HeaderOverTheLimitIsRefused) {
  PagesOptions options;
  options.max_request_bytes = 2048;
  Start(options);
  const auto with = [](size_t bytes) {
    return absl::StrCat("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ",
                        std::string(bytes, 'x'), "\r\n\r\n");
  };
  EXPECT_EQ(CodeOf(Exchange(port(), with(1024))), 200);
  EXPECT_NE(CodeOf(Exchange(port(), with(4096))), 200);
  EXPECT_EQ(CodeOf(Get(port(), "/healthz")), 200);
}

// A name of another site that leads to 127.0.0.1: a browser would let that site's script read the pages.
TEST_F(HttpPagesTest, OnLoopbackOtherHostNamesAreRefused) {
  Start();
  const auto as = [this](const std::string& host) {
    return CodeOf(
        Exchange(port(), absl::StrCat("GET /status.json HTTP/1.1\r\nHost: ", host, "\r\n\r\n")));
  };
  EXPECT_EQ(as("evil.example"), 421);
  EXPECT_EQ(as("evil.example:9464"), 421);
  EXPECT_EQ(as(""), 421);
  EXPECT_EQ(as("127.0.0.1.evil.example"), 421);
  EXPECT_EQ(as("localhost:9464"), 200);
  EXPECT_EQ(as("127.0.0.1:9464"), 200);
  EXPECT_EQ(as("[::1]:9464"), 200);
}

TEST_F(HttpPagesTest, TokenIsRequiredWhereDataAre) {
  PagesOptions options;
  options.readers = {{TokenFile("pages_operator", kToken), ""}};
  Start(options);
  for (const char* path : {"/status.json", "/metrics", "/config"}) {
    EXPECT_EQ(CodeOf(Get(port(), path)), 401) << path;
    EXPECT_EQ(CodeOf(Get(port(), path, "not-an-operators-token-32-letter")), 401) << path;
    EXPECT_EQ(CodeOf(Get(port(), path, std::string(kToken) + "x")), 401) << path;
    EXPECT_EQ(CodeOf(Get(port(), path, kToken)), 200) << path;
  }
  EXPECT_THAT(Get(port(), "/status.json"), HasSubstr("WWW-Authenticate: Bearer"));
  EXPECT_THAT(Get(port(), "/status.json"), Not(HasSubstr("orders")));
  EXPECT_EQ(CodeOf(Get(port(), "/")), 200);  // without data; it asks for the token
  EXPECT_EQ(CodeOf(Get(port(), "/healthz")), 200);
}

TEST_F(HttpPagesTest, UnusableTokensAreErrors) {
  const auto refused = [](const std::vector<PageReader>& readers) {
    PagesOptions options;
    options.readers = readers;
    return HttpPages::Start("0", options).status();
  };
  EXPECT_EQ(refused({{::testing::TempDir() + "/no_such_file", ""}}).code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(refused({{TokenFile("pages_open", kToken, 0644), ""}}).code(),
            absl::StatusCode::kPermissionDenied);
  const absl::Status brief = refused({{TokenFile("pages_brief", "short"), ""}});
  EXPECT_EQ(brief.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(brief.message()), HasSubstr("is not used"));
  EXPECT_EQ(refused({{TokenFile("pages_none", "# none"), ""}}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refused({{TokenFile("pages_one", kToken), ""}, {TokenFile("pages_same", kToken), "red"}})
          .code(),
      absl::StatusCode::kInvalidArgument);
}

bool IsOpen(int fd) {
  char byte = 0;
  return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
}

// More connections that send nothing than workers.
TEST_F(HttpPagesTest, IdleConnectionsAreClosedAfterTheTimeout) {
  PagesOptions options;
  options.workers = 2;
  options.request_timeout = absl::Milliseconds(20);
  Start(options);
  std::vector<int> idle;
  for (int i = 0; i < 8; ++i) idle.push_back(Open(port()));
  EXPECT_EQ(CodeOf(Get(port(), "/healthz")), 200);
  EXPECT_FALSE(IsOpen(idle[0]));
  for (const int fd : idle) close(fd);
}

// The only worker writes to a client that does not read more than the socket holds.
// Bodies of requests are refused, and not read to their end.
TEST_F(HttpPagesTest, BodyThatComesSlowlyHoldsNoWorker) {
  PagesOptions options;
  options.workers = 1;
  Start(options);
  const int fd = Open(port());
  Send(fd, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nx");
  // The only worker is free again although the body has not come and the connection is open.
  EXPECT_EQ(CodeOf(Get(port(), "/healthz")), 200);
  EXPECT_EQ(CodeOf(ReadAll(fd)), 405);
}

TEST_F(HttpPagesTest, ExceptionsOfCounterSourcesAreErrorsOfTheRequest) {
  Start();
  pages_->Add([]() -> std::vector<Reading> { throw 42; }, "odd");
  EXPECT_EQ(CodeOf(Get(port(), "/status.json")), 500);
  EXPECT_EQ(CodeOf(Get(port(), "/metrics")), 200) << "without these counters";
  pages_->Remove("odd");
  EXPECT_EQ(CodeOf(Get(port(), "/status.json")), 200);
}

// A callback that blocks keeps no request, and may use the pages.
TEST_F(HttpPagesTest, ChannelWhoseCallbackBlocksIsNotFresh) {
  PagesOptions options;
  options.patience = absl::Milliseconds(20);
  Start(options);
  std::string status, metrics;
  CallContext context(absl::Seconds(60));
  examples::echo::SayReply reply;
  bool over = false;
  ASSERT_TRUE(examples::echo::EchoClient(channel_)
                  .StartSay(context, {}, &reply,
                            [&](const absl::Status&) {
                              status = Get(port(), "/status.json");
                              metrics = Get(port(), "/metrics");
                              pages_->Remove("to_orders");
                              over = true;
                            })
                  .ok());
  ASSERT_TRUE(channel_->Drive([&] { return over; }, absl::Seconds(60)));
  const Status blocked = Parse<Status>(status);
  ASSERT_EQ(blocked.channels_size(), 1);
  EXPECT_FALSE(blocked.channels(0).fresh());
  EXPECT_EQ(blocked.channels(0).methods(0).started(), 4u);
  EXPECT_THAT(metrics, HasSubstr("sluice_channel_fresh{channel=\"to_orders\"} 0"));
  EXPECT_TRUE(channel_->Snapshot(absl::Seconds(60)).fresh);
}

TEST_F(HttpPagesTest, ReaderThatDoesNotReadIsGivenUp) {
  PagesOptions options;
  options.workers = 1;
  options.request_timeout = absl::Milliseconds(50);
  options.refresh = absl::Hours(1);
  Start(options);
  const std::string meaning(1 << 20, 'm');
  pages_->Add(
      [&meaning] {
        return std::vector<Reading>(16, Reading{"much", 1, true, meaning.c_str()});
      },
      "large");
  const int slow = Open(port(), 4096);
  Send(slow, "GET /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(BodyOf(Get(port(), "/healthz")), "ok\n");
  EXPECT_LT(ReadAll(slow).size(), 16u << 20);
  EXPECT_GT(Get(port(), "/status.json").size(), 16u << 20);
}

// The polling thread is asked once.
TEST_F(HttpPagesTest, TenThousandRequestsTakeTheStateOnce) {
  PagesOptions options;
  options.refresh = absl::Hours(1);
  Start(options);
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([this] {
      for (int n = 0; n < 2500; ++n) {
        ASSERT_EQ(CodeOf(Exchange(port(), "HEAD /status.json HTTP/1.1\r\nHost: localhost\r\n\r\n")),
                  200);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(pages_->looks(), 1u);
}

TEST_F(HttpPagesTest, WhatIsRemovedIsNotShown) {
  Start();
  pages_->Remove("orders");
  pages_->Remove("to_orders");
  const Status status = Parse<Status>(Get(port(), "/status.json"));
  EXPECT_EQ(status.servers_size(), 0);
  EXPECT_EQ(status.channels_size(), 0);
  EXPECT_THAT(Get(port(), "/metrics"), Not(HasSubstr("sluice_server_")));
}

// A server on the software NIC with two tenants, and a caller of each.
class HttpPagesTenantsTest : public ::testing::Test {
 protected:
  void Start(const PagesOptions& pages_options) {
    ServerOptions options;
    options.device = "softdc0";
    options.tenants = {{.name = "red"}, {.name = "blue"}};
    for (Tenant& tenant : options.tenants) {
      tenant.authentication.secret_source = SecretOf(tenant.name);
    }
    options.slow_call = absl::Microseconds(1);  // every call is
    auto server = Server::Create(options);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    ASSERT_TRUE(server_->Register(&echo_).ok());
    const auto port = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(port.ok()) << port.status();
    for (const std::string tenant : {"red", "blue", "blue"}) {
      ChannelOptions channel;
      channel.device = "softdc0";
      channel.authentication.secret_source = SecretOf(tenant);
      auto connected = Channel::Connect(absl::StrCat("127.0.0.1:", *port), channel);
      ASSERT_TRUE(connected.ok()) << connected.status();
      channels_.push_back(*std::move(connected));
      CallContext context(absl::Seconds(60));
      ASSERT_TRUE(examples::echo::EchoClient(channels_.back()).Say(context, {}).ok());
    }
    PagesOptions patient = pages_options;
    patient.patience = absl::Seconds(10);
    auto pages = HttpPages::Start("0", patient);
    ASSERT_TRUE(pages.ok()) << pages.status();
    pages_ = *std::move(pages);
    pages_->Add(server_.get(), "shop", options);
    pages_->Add(channels_[0], "of_red");
    auto other = InProcess::Start({&echo_});
    ASSERT_TRUE(other.ok()) << other.status();
    other_ = *std::move(other);
    pages_->Add(&other_->server(), "without_tenants", {});
  }
  ~HttpPagesTenantsTest() override {
    pages_.reset();
    channels_.clear();
  }
  static std::function<absl::StatusOr<std::vector<std::string>>()> SecretOf(
      const std::string& tenant) {
    return [tenant] { return std::vector<std::string>{"the secret of tenant " + tenant}; };
  }

  examples::echo::EchoService echo_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<InProcess> other_;
  std::vector<std::shared_ptr<Channel>> channels_;
  std::unique_ptr<HttpPages> pages_;
};

TEST_F(HttpPagesTenantsTest, ReaderOfATenantSeesItsOwnOnly) {
  PagesOptions options;
  options.readers = {{TokenFile("tenants_operator", kToken), ""},
                     {TokenFile("tenants_red", kRedToken), "red"}};
  Start(options);
  const std::string reply = Get(pages_->port(), "/status.json", kRedToken);
  EXPECT_THAT(reply, Not(HasSubstr("blue")));
  const Status red = Parse<Status>(reply);
  EXPECT_EQ(red.only_tenant(), "red");
  ASSERT_EQ(red.servers_size(), 1);
  EXPECT_EQ(red.servers(0).name(), "shop");
  const auto& look = red.servers(0).look();
  EXPECT_EQ(look.only_tenant(), "red");
  ASSERT_EQ(look.peers_size(), 1);
  EXPECT_EQ(look.peers_in_all(), 1u);
  for (const auto& call : look.slow_calls()) EXPECT_EQ(call.peer(), look.peers(0).address());
  EXPECT_EQ(look.counts_size() + look.methods_size() + look.queues_size() + look.pollers_size(), 0);
  EXPECT_EQ(red.servers(0).events_size(), 0);
  EXPECT_EQ(red.channels_size() + red.sources_size(), 0);
  EXPECT_FALSE(red.has_process());
  EXPECT_EQ(CodeOf(Get(pages_->port(), "/metrics", kRedToken)), 403);
  EXPECT_EQ(CodeOf(Get(pages_->port(), "/config", kRedToken)), 403);

  const Status all = Parse<Status>(Get(pages_->port(), "/status.json", kToken));
  ASSERT_EQ(all.servers_size(), 2);
  EXPECT_EQ(all.servers(0).look().peers_size(), 3);
  EXPECT_EQ(all.servers(0).look().peers(0).credit_window(), 64u);
  EXPECT_GT(all.servers(0).look().queues_size(), 0);
  EXPECT_EQ(CodeOf(Get(pages_->port(), "/metrics", kToken)), 200);
}

TEST_F(HttpPagesTenantsTest, WithoutTokensNothingOfTenantsIsShown) {
  Start({});
  const std::string reply = Get(pages_->port(), "/status.json");
  EXPECT_THAT(reply, Not(HasSubstr("blue")));
  const Status status = Parse<Status>(reply);
  ASSERT_EQ(status.servers_size(), 2);
  const ServerStatus& shop = status.servers(0);
  EXPECT_THAT(shop.withheld(), HasSubstr("PagesOptions::readers"));
  EXPECT_EQ(shop.look().peers_size() + shop.look().slow_calls_size() + shop.look().methods_size(),
            0);
  EXPECT_EQ(shop.events_size(), 0);
  EXPECT_EQ(status.servers(1).withheld(), "");
}

}  // namespace http_pages_test
}  // namespace sluice
