// SPDX-License-Identifier: Apache-2.0
#include "tools/stat_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "google/protobuf/text_format.h"
#include "middleware/services/counter_table.h"

namespace sluice::tools {
namespace stat_table_test {

using introspection::v1::LookReply;
using ::testing::HasSubstr;
using ::testing::Not;

LookReply Read(const std::string& text) {
  LookReply reply;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &reply));
  return reply;
}

constexpr char kBefore[] = R"(
  device: "softdc0" time_ns: 1000000000
  counts { name: "requests" value: 100 } counts { name: "peers" value: 1 now: true }
  counts { name: "stream_resets" value: 2 meaning: "streams reset" }
  methods {
    name: "/a.B/Say" started: 100 ended { code: "OK" count: 90 } ended { code: "NOT_FOUND" count: 10 }
    request_bytes: 1000 reply_bytes: 1000
    latencies { first_ns: 1024 last_ns: 1151 count: 100 }
  })";
constexpr char kAfter[] = R"(
  device: "softdc0" time_ns: 3000000000
  counts { name: "requests" value: 300 } counts { name: "peers" value: 2 now: true }
  counts { name: "stream_resets" value: 2 meaning: "streams reset" }
  methods {
    name: "/a.B/Say" started: 300 in_flight: 7 ended { code: "OK" count: 280 } ended { code: "NOT_FOUND" count: 13 }
    request_bytes: 3000 reply_bytes: 2000
    latencies { first_ns: 1024 last_ns: 1151 count: 100 } latencies { first_ns: 2048 last_ns: 2303 count: 200 }
  }
  methods { name: "/a.B/New" started: 1 }
  peers { address: "10.0.0.5:4242" tenant: "red" authenticated: true waiting_replies: 3 } peers_in_all: 2
  queues { qp_number: 66 state: "ready" streams: 64 streams_busy: 1 posted: 5 }
  slow_calls { method: "/a.B/Say" peer: "10.0.0.5:4242" took_ns: 250000000 ago_ns: 1000000 code: "OK" }
  slow_calls_in_all: 9
  calls_under_way { method: "/a.B/New" peer: "10.0.0.5:4242" age_ns: 2000000000 time_left_ns: -1 })";

TEST(StatTableTest, ShowsWhatCameBetween) {
  const LookReply difference = Between(Read(kBefore), Read(kAfter));
  EXPECT_EQ(difference.methods(0).started(), 200u);
  EXPECT_EQ(difference.methods(0).ended(1).count(), 3u);
  EXPECT_EQ(difference.methods(0).latencies(0).count(), 0u);
  EXPECT_EQ(difference.methods(1).started(), 1u);
  EXPECT_EQ(difference.counts(0).value(), 200u);
  EXPECT_EQ(difference.counts(1).value(), 2u);
  const std::string table = StatTable(difference, 2.0);
  EXPECT_THAT(table, HasSubstr("in the last 2.0 s"));
  // 100 calls a second, 3 errors, 7 in flight, all latencies in the second bucket, 1500 bytes a second.
  EXPECT_THAT(table,
              HasSubstr("/a.B/Say                                            100.0          3"
                        "         7    2303 ns    2303 ns    2303 ns       1500.0\n"));
  EXPECT_THAT(table, HasSubstr("peers: 2"));
  EXPECT_THAT(table, HasSubstr("10.0.0.5:4242                red          yes"));
  EXPECT_THAT(table, HasSubstr("DCI 0x000042 ready      posted 5, streams 1 of 64 busy"));
  EXPECT_THAT(table, HasSubstr("slow calls, the last of 9"));
  EXPECT_THAT(table, HasSubstr("took 250.0 ms, OK, 1000.0 us ago"));
  EXPECT_THAT(table, HasSubstr("for 2000.0 ms, no deadline"));
  EXPECT_THAT(table, Not(HasSubstr("trouble"))) << "the reset came before";
}

// Both have the list, the page in JavaScript.
TEST(StatTableTest, ShowsTheCountersThatTheStatusPageCallsTrouble) {
  std::ifstream file("middleware/services/status_page.html");
  const std::string page(std::istreambuf_iterator<char>(file), {});
  const size_t begin = page.find("const TROUBLE = [");
  ASSERT_NE(begin, std::string::npos);
  const std::string list = page.substr(begin, page.find(']', begin) - begin);
  const std::vector<std::string> parts = absl::StrSplit(list, '"');
  ASSERT_GE(parts.size(), 21u);
  LookReply look;
  for (size_t i = 1; i < parts.size(); i += 2) {
    introspection::v1::Count* const count = look.add_counts();
    count->set_name(parts[i]);
    count->set_value(1);
  }
  const std::string table = StatTable(look, 2.0);
  for (const introspection::v1::Count& count : look.counts()) {
    EXPECT_THAT(table, HasSubstr("\n  " + count.name() + " ")) << "missing in kTrouble";
  }
  // And no other counter of a server.
  LookReply others;
  for (const Reading& reading : ReadCounters(ServerSnapshot())) {
    if (absl::StrContains(list, absl::StrCat("\"", reading.name, "\""))) continue;
    introspection::v1::Count* const count = others.add_counts();
    count->set_name(reading.name);
    count->set_value(1);
  }
  EXPECT_GE(others.counts_size(), 20);
  EXPECT_THAT(StatTable(others, 2.0), Not(HasSubstr("trouble")));
}

TEST(StatTableTest, SeveralPollersAreListedAndOneIsNot) {
  const LookReply before = Read("pollers { fresh: true requests: 100 } pollers { requests: 7 }");
  const LookReply after =
      Read("pollers { fresh: true requests: 300 peers: 5 } pollers { requests: 7 peers: 4 }");
  const std::string table = StatTable(Between(before, after), 2.0);
  EXPECT_THAT(table, HasSubstr("pollers: 2\n"));
  EXPECT_THAT(table, HasSubstr("  100.0                                 5\n"));
  EXPECT_THAT(table, HasSubstr("  0.0                                   4  busy in a handler"));
  const LookReply one = Read("pollers { fresh: true requests: 300 peers: 5 }");
  EXPECT_THAT(StatTable(one, 0), Not(HasSubstr("pollers")));
}

TEST(StatTableTest, FirstTableIsOfTheWholeLifeAndShowsTrouble) {
  const LookReply difference = Between(LookReply(), Read(kAfter));
  const std::string table = StatTable(difference, 0);
  EXPECT_THAT(table, HasSubstr("since the server's start"));
  EXPECT_THAT(table, HasSubstr("300"));
  EXPECT_THAT(table, HasSubstr("stream_resets"));
}

TEST(StatTableTest, ServerThatWasStartedAnewCountsFromItsStart) {
  const LookReply difference = Between(Read(kAfter), Read(kBefore));
  EXPECT_EQ(difference.methods(0).started(), 100u);
  EXPECT_EQ(difference.counts(0).value(), 100u);
}

}  // namespace stat_table_test
}  // namespace sluice::tools
