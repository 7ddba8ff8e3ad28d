// SPDX-License-Identifier: Apache-2.0
//
// The tool against examples/log_tail's server, on a softdc of this test's own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/programs.h"
#include "tools/child_process.h"

namespace sluice::tools {
namespace sluice_call_test {

using ::testing::HasSubstr;

class SluiceCallTest : public ::testing::Test {
 protected:
  // What `before | sluice_call what` says, errors too.
  std::string Call(const std::string& what, int code = 0, const std::string& before = "") {
    const std::string command = before +
                                "tools/sluice_call --device=softdc0 --server=" + server_.address +
                                " " + what + " 2>&1";
    return testing_support::OutputOf(
        testing_support::StartProgram({"/bin/sh", "-c", command}).get(), code);
  }

  const testing_support::ServerProgram server_{{"examples/log_tail/log_server"}};
};

TEST_F(SluiceCallTest, ListsAndDescribes) {
  EXPECT_EQ(Call("list"),
            "sluice.examples.log_tail.Log\nsluice.health.v1.Health\n"
            "sluice.reflection.v1.Reflection\n");
  const std::string described = Call("describe sluice.examples.log_tail.Log");
  EXPECT_THAT(described, HasSubstr("returns (stream .sluice.examples.log_tail.Line)"));
  EXPECT_THAT(described, HasSubstr("string containing = 1"));
}

TEST_F(SluiceCallTest, CallsMethodsOfEachShape) {
  EXPECT_EQ(Call("sluice.health.v1.Health/Check"), "{\"status\":\"SERVING\"}\n");
  EXPECT_EQ(Call("/sluice.examples.log_tail.Log/Append", 0,
                 "printf '{\"text\":\"one\"}\\n{\"text\":\"two\"}\\n' | "),
            "{\"lines\":\"2\"}\n");
  EXPECT_EQ(Call("--json=- sluice.examples.log_tail.Log/Append", 0, "true | "),
            "{\"lines\":\"0\"}\n")
      << "--json is not asked";
  // Nobody has said anything of that one: what standard input says has arrived.
  EXPECT_THAT(Call("--json=- sluice.health.v1.Health/Check", 1,
                   "printf '{\n \"service\": \"from.input\"\n}' | "),
              HasSubstr("from.input"));
  // It follows until its time is over.
  const std::string tail =
      Call("--timeout=300ms --json='{\"last\":2}' sluice.examples.log_tail.Log/Tail", 1);
  EXPECT_THAT(tail, HasSubstr("{\"text\":\"one\"}\n{\"text\":\"two\"}\n"));
  EXPECT_THAT(tail, HasSubstr("DEADLINE_EXCEEDED"));
}

TEST_F(SluiceCallTest, WrongInputIsSaidClearly) {
  EXPECT_THAT(Call("", 2), HasSubstr("say list, describe"));
  EXPECT_THAT(Call("describe", 2), HasSubstr("say list, describe"));
  EXPECT_THAT(Call("nonsense", 2), HasSubstr("package.Service/Method"));
  EXPECT_THAT(Call("sluice.Nothing/Do", 1), HasSubstr("sluice.health.v1.Health"));
  EXPECT_THAT(Call("sluice.health.v1.Health/Cheque", 1), HasSubstr("Check, Watch"));
  EXPECT_THAT(Call("--json='{' sluice.health.v1.Health/Check", 2), HasSubstr("as JSON"));
  EXPECT_THAT(Call("--json='{\"servise\":1}' sluice.health.v1.Health/Check", 2),
              HasSubstr("servise"));
  EXPECT_THAT(Call("--json='{\"service\":\"x\"}' sluice.health.v1.Health/Check", 1),
              HasSubstr("NOT_FOUND"));
  const std::string long_one =
      Call("--json=- sluice.health.v1.Health/Check", 2, "head -c 100000 /dev/zero | tr '\\0' x | ");
  EXPECT_THAT(long_one, HasSubstr("xxx..."));
  EXPECT_LT(long_one.size(), 1000u);
  EXPECT_THAT(Call("--servre=x list", 2), HasSubstr("server"));
  EXPECT_THAT(Call("sluice.examples.log_tail.Log/Append", 1, "echo nonsense | "),
              HasSubstr("as JSON"));
}

}  // namespace sluice_call_test
}  // namespace sluice::tools
