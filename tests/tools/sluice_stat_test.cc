// SPDX-License-Identifier: Apache-2.0
//
// The tool against examples/echo's server, on a softdc of this test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/util/json_util.h"
#include "proto/introspection.pb.h"
#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::tools {
namespace sluice_stat_test {

using ::testing::HasSubstr;

class SluiceStatTest : public ::testing::Test {
 protected:
  // What the tool says, errors too.
  std::string Run(const std::string& tool, const std::string& what, int code = 0) {
    const std::string command =
        tool + " --device=softdc0 --server=" + server_.address + " " + what + " 2>&1";
    return testing_support::OutputOf(
        testing_support::StartProgram({"/bin/sh", "-c", command}).get(), code);
  }
  std::string Stat(const std::string& what, int code = 0) {
    return Run("tools/sluice_stat", what, code);
  }

  const testing_support::ServerProgram server_{{"examples/echo/echo_server"}};
};

TEST_F(SluiceStatTest, TablesTellOfCalls) {
  Run("tools/sluice_call", "sluice.health.v1.Health/Check");
  const std::string tables = Stat("--count=2 --interval=10ms");
  EXPECT_THAT(tables, HasSubstr("since the server's start"));
  EXPECT_THAT(tables, HasSubstr("/sluice.health.v1.Health/Check"));
  EXPECT_THAT(tables, HasSubstr("in the last 0.0 s"));
  EXPECT_THAT(tables, HasSubstr("DCI 0x"));
}

TEST_F(SluiceStatTest, JsonIsTheMessage) {
  Run("tools/sluice_call", "sluice.health.v1.Health/Check");
  introspection::v1::LookReply look;
  const std::string json = Stat("--count=1 --json=-");
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(json, &look).ok()) << json;
  EXPECT_GE(look.methods_size(), 2) << "the check, and this look";
  EXPECT_GE(look.peers_in_all(), 1u);
  EXPECT_GE(look.queues_size(), 1);
  EXPECT_EQ(look.capabilities_size(), 9);
}

TEST_F(SluiceStatTest, TraceTellsWhatHappenedLast) {
  Run("tools/sluice_call", "sluice.health.v1.Health/Check");
  const std::string trace = Stat("--trace=100");
  EXPECT_THAT(trace, HasSubstr("peer up"));
  EXPECT_THAT(trace, HasSubstr("reply        OK                   /sluice."))
      << "the first answer is always in the sample";
}

TEST_F(SluiceStatTest, WrongInputIsSaidClearly) {
  EXPECT_THAT(Stat("--cuont=1", 2), HasSubstr("count"));
  EXPECT_THAT(Stat("--count=-1", 2), HasSubstr("count"));
  EXPECT_THAT(Stat("--server=127.0.0.1:1 --timeout=200ms --count=1", 1), HasSubstr("127.0.0.1:1"));
}

}  // namespace sluice_stat_test
}  // namespace sluice::tools
