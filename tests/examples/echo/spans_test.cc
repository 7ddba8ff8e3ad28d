// SPDX-License-Identifier: Apache-2.0
//
// The spans that client and server write, each to a file: one trace.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "tools/child_process.h"

namespace sluice::examples::echo {
namespace spans_test {

using google::protobuf::Struct;
using google::protobuf::Value;
using tools::ChildProcess;

// Events that have a duration, by name.
std::map<std::string, Struct> Calls(const std::string& path) {
  std::ifstream file(path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  Struct trace;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &trace);
  EXPECT_TRUE(status.ok()) << path << ": " << status.ToString();
  std::map<std::string, Struct> calls;
  for (const Value& one : trace.fields().at("traceEvents").list_value().values()) {
    const Struct& event = one.struct_value();
    if (event.fields().at("ph").string_value() != "X") continue;
    calls[event.fields().at("name").string_value()] = event;
  }
  unlink(path.c_str());
  return calls;
}

std::string TraceOf(const Struct& event) {
  return event.fields().at("args").struct_value().fields().at("trace").string_value();
}

TEST(EchoSpansTest, ClientAndServerWriteOneTrace) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-spans-", getpid()).c_str(), 1);
  const std::string base = absl::StrCat(testing::TempDir(), "/spans.", getpid());
  auto server =
      ChildProcess::Start({"examples/echo/echo_server", "--listen=127.0.0.1:0", "--device=softdc0",
                           absl::StrCat("--spans=", base, ".server")});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = tools::ListeningAddress(**server, absl::Seconds(30));
  ASSERT_TRUE(address.ok()) << address.status();
  auto client =
      ChildProcess::Start({"examples/echo/echo_client", "--device=softdc0", "--server=" + *address,
                           absl::StrCat("--spans=", base, ".client")});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->Wait(absl::Seconds(50)).value_or(-1), 0);
  (*server)->Signal(SIGTERM);
  EXPECT_EQ((*server)->Wait(absl::Seconds(50)).value_or(-1), 0);

  const auto at_client = Calls(base + ".client"), at_server = Calls(base + ".server");
  constexpr char kSay[] = "sluice.examples.echo.Echo/Say";
  ASSERT_EQ(at_client.count(kSay), 1u);
  ASSERT_EQ(at_server.count(kSay), 1u);
  EXPECT_EQ(at_server.count("wait"), 1u);
  EXPECT_EQ(at_server.count("handler"), 1u);
  EXPECT_EQ(TraceOf(at_client.at(kSay)), TraceOf(at_server.at(kSay)));
}

}  // namespace spans_test
}  // namespace sluice::examples::echo
