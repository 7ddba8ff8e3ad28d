// SPDX-License-Identifier: Apache-2.0
//
// A run with a mutation shows something only if its tests ran and failed. The suites here are scripts that print what
// GoogleTest prints.
#include "tests/transport/softdc/conformance/suite_run.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::conformance {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr char kFirst[] = "echo '[ RUN      ] A.First'; echo '[  FACTS   ] 1,2'\n";
constexpr char kSecond[] = "echo '[ RUN      ] A.Second'; echo '[  FACTS   ] 3'\n";
constexpr char kOk[] = "echo '[       OK ] that (0 ms)'\n";
constexpr char kFails[] = "echo '[  FAILED  ] that (0 ms)'; failed=1\n";

class SuiteRunTest : public ::testing::Test {
 protected:
  // What a suite does in its first test if the mutation "kBroken" is on. The second test passes.
  void WriteSuite(const std::string& if_broken, const std::string& else_does = kOk) {
    std::ofstream script(program_);
    script << "#!/bin/bash\nfailed=0\n"
           << "case $1 in *:A.First*) ;; *)\n"
           << kFirst << "if [[ ${SOFTDC_MUTATION:-} == kBroken ]]; then\n"
           << if_broken << "\nelse\n"
           << else_does << "\nfi ;; esac\n"
           << kSecond << kOk << "exit $failed\n";
    script.close();
    ASSERT_EQ(chmod(program_.c_str(), 0700), 0);
  }
  SuiteRun Run(const std::string& mutation) {
    return RunSuite({.program = program_, .mutation = mutation, .without = "X.*", .limit_s = 20});
  }
  std::vector<std::string> JudgeBroken(const std::vector<int>& facts) {
    return Judge(Run(""), Run("kBroken"), facts);
  }

  const std::string program_ = ::testing::TempDir() + "suite_run_test.sh";
};

TEST_F(SuiteRunTest, TestOfTheFactThatFailsNotices) {
  WriteSuite(kFails);
  const SuiteRun run = Run("kBroken");
  EXPECT_THAT(run.errors, IsEmpty());
  EXPECT_THAT(run.failed, ElementsAre("A.First"));
  EXPECT_EQ(run.facts.size(), 2u);
  EXPECT_THAT(JudgeBroken({1}), IsEmpty());
  EXPECT_THAT(JudgeBroken({1, 2}), IsEmpty());
  EXPECT_THAT(JudgeBroken({2, 3}), ElementsAre("no test of fact 3 fails"));
}

TEST_F(SuiteRunTest, MutationThatNobodyNoticesOrThatBreaksNoFact) {
  WriteSuite(kOk);
  EXPECT_THAT(JudgeBroken({1}), ElementsAre("no test of fact 1 fails"));
  EXPECT_THAT(JudgeBroken({}), ElementsAre("the mutation breaks no fact"));
}

TEST_F(SuiteRunTest, TestThatFailsWithoutTheMutationTooShowsNothing) {
  WriteSuite(kFails, kFails);
  EXPECT_THAT(JudgeBroken({1}), Contains("A.First fails without the mutation too"));
  WriteSuite(kFails, "kill -SEGV $$");
  EXPECT_THAT(JudgeBroken({1}), Contains("without the mutation: Segmentation fault in A.First"));
  WriteSuite(kFails, "exit 3");
  EXPECT_THAT(JudgeBroken({1}), Contains("without the mutation: ended with status 3 in A.First"));
}

TEST_F(SuiteRunTest, PatienceIsTheSameWithAndWithoutTheMutation) {
  const std::string impatient =
      std::string("if [[ ${CONFORMANCE_PATIENCE_MS:-} ]]; then\n") + kFails + "else\n" + kOk + "fi";
  WriteSuite(impatient, impatient);
  EXPECT_THAT(JudgeBroken({1}), Contains("A.First fails without the mutation too"));
}

TEST_F(SuiteRunTest, ProgramThatIsNotThere) {
  const SuiteRun run =
      RunSuite({.program = program_ + ".none", .mutation = "", .without = "", .limit_s = 20});
  EXPECT_THAT(run.errors, ElementsAre("ended with status 127 between two tests"));
  WriteSuite(kFails);
  EXPECT_THAT(Judge(Run(""), run, {1}), Contains(run.errors[0]));
  EXPECT_THAT(Judge(run, Run("kBroken"), {1}), Contains("no test ran without the mutation"));
}

TEST_F(SuiteRunTest, AnotherExitThanThatOfATestIsAnError) {
  WriteSuite(std::string(kFails) + "exit 0");
  EXPECT_THAT(JudgeBroken({1}), Contains("ended with status 0 although a test failed"));
  WriteSuite(std::string(kFails) + "exit 3");
  EXPECT_THAT(JudgeBroken({1}), Contains("ended with status 3 between two tests"));
  WriteSuite(std::string(kOk) + "exit 1");
  EXPECT_THAT(JudgeBroken({1}), Contains("ended with status 1 although no test failed"));
  WriteSuite("exit 1");
  EXPECT_THAT(JudgeBroken({1}), Contains("ended with status 1 in A.First"));
}

TEST_F(SuiteRunTest, TestsAreNotLeftOut) {
  WriteSuite(std::string(kFails) + "exit 1");
  EXPECT_THAT(JudgeBroken({1}), ElementsAre("A.Second did not run"));
}

TEST_F(SuiteRunTest, DeathIsAnError) {
  WriteSuite("kill -SEGV $$");
  EXPECT_THAT(JudgeBroken({1}),
              ElementsAre("Segmentation fault in A.First", "no test of fact 1 fails"));
  WriteSuite(std::string(kFails) + "kill -SEGV $$");
  EXPECT_THAT(JudgeBroken({1}), ElementsAre("Segmentation fault between two tests"));
}

TEST_F(SuiteRunTest, TimeOutIsAnError) {
  WriteSuite("kill -ALRM $$");  // as the timer does
  EXPECT_THAT(JudgeBroken({1}), Contains("did not end within 20 s, in A.First"));
}

}  // namespace
}  // namespace sluice::conformance
