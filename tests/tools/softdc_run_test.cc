// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/program_run.h"

namespace sluice::tools {
namespace softdc_run_test {

using ::testing::HasSubstr;

constexpr char kRun[] = "tools/softdc_run";

class SoftdcRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's library has to come before any other that is preloaded";
#endif
    unsetenv("SOFTDC_CONFIG");
    unsetenv("LD_PRELOAD");
  }
  static std::string File(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/config";
    std::ofstream(path) << text;
    return path;
  }
};

TEST_F(SoftdcRunTest, ProgramGetsLibraryDomainAndConfiguration) {
  const std::string config = File("limits { max_sge: 4 }\n");
  const ProgramRun run = RunProgram({kRun, "--domain", "blue", "--config", config, "sh", "-c",
                                     "echo $SOFTDC_DOMAIN $SOFTDC_CONFIG $LD_PRELOAD"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output,
              HasSubstr(absl::StrCat("blue @", std::filesystem::canonical(config).string(), " /")));
  EXPECT_THAT(run.output, HasSubstr("/libsoftdc_preload.so\n"));
}

TEST_F(SoftdcRunTest, LibrariesThatWereToBePreloadedStayAndSoDoesTheDomainOfTheEnvironment) {
  setenv("LD_PRELOAD", "libc.so.6", 1);
  const ProgramRun run =
      RunProgram({kRun, "--", "sh", "-c", "echo $LD_PRELOAD; echo $SOFTDC_DOMAIN"});
  unsetenv("LD_PRELOAD");
  EXPECT_THAT(run.output, HasSubstr(absl::StrCat("/libsoftdc_preload.so:libc.so.6\n",
                                                 getenv("SOFTDC_DOMAIN"), "\n")));
}

TEST_F(SoftdcRunTest, ExitCodeIsThePrograms) {
  EXPECT_EQ(RunProgram({kRun, "sh", "-c", "exit 7"}).exit_code, 7);
  EXPECT_EQ(RunProgram({kRun, "/no/such/program"}).exit_code, 127);
  EXPECT_EQ(RunProgram({kRun, "/etc/passwd"}).exit_code, 126);
}

TEST_F(SoftdcRunTest, WrongUsageAndImpossibleConfigurationAreExitCode2) {
  EXPECT_EQ(RunProgram({kRun}).exit_code, 2);
  EXPECT_EQ(RunProgram({kRun, "--colour", "blue", "true"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kRun, "--config", "/no/such/file", "true"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kRun, "--config", File("limits { max_sgee: 4 }"), "true"}).exit_code, 2);
  setenv("SOFTDC_CONFIG", "limits { max_sge: 400 }", 1);
  EXPECT_EQ(RunProgram({kRun, "true"}).exit_code, 2);
  unsetenv("SOFTDC_CONFIG");
}

TEST_F(SoftdcRunTest, HelpNamesTheOptions) {
  const ProgramRun run = RunProgram({kRun, "--help"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, HasSubstr("--domain"));
  EXPECT_THAT(run.output, HasSubstr("--config"));
}

}  // namespace softdc_run_test
}  // namespace sluice::tools
