// SPDX-License-Identifier: Apache-2.0
//
// libsoftdc_preload.so in a program that was not made for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/program_run.h"

namespace sluice::softdc {
namespace preload_test {

using ::testing::HasSubstr;

class PreloadTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's library has to come before any other that is preloaded";
#endif
  }
  static std::string Probe(const std::string& what) {
    const tools::ProgramRun run =
        tools::RunProgram({"tools/softdc_run", "tests/transport/softdc/preload/probe", what});
    EXPECT_EQ(run.exit_code, 0);
    return run.output;
  }
};

TEST_F(PreloadTest, ProgramWithoutVerbsLoadsNoDeviceAndItsFilesWork) {
  EXPECT_EQ(Probe("idle"), "written 1\nnull_is_device 1\nclosed 0\nmode 640\ndevice_library 0\n");
}

TEST_F(PreloadTest, FunctionsThatSoftdcHasNotSaySoAndChildrenOfAForkHaveTheDevice) {
  EXPECT_EQ(Probe("verbs"),
            absl::StrCat("name softdc0\nimport_null 1\nimport_errno ", EOPNOTSUPP, "\ndevx ",
                         EOPNOTSUPP, "\nindex -1\ndevices_in_child 1\nclose 0\n"));
}

TEST_F(PreloadTest, ConnectionManagerIsACharacterDeviceThatPollsAndRefusesHalfACommand) {
  EXPECT_EQ(Probe("cm"),
            absl::StrCat("opened 1\nis_device 1\npolled 0\nshort_write -1\nshort_errno ", EINVAL,
                         "\nclosed 0\nclosed_twice -1\n"));
}

TEST_F(PreloadTest, FilesOfTheDeviceAreFoundOpenedAndRead) {
  EXPECT_EQ(Probe("files"),
            "device 1\ncm 1\nusable 0\nother -1\nfolder 1\nvendor 0x15b3\ntype RoCE v2\nwrite "
            "-1\nabsent -1\n");
}

TEST_F(PreloadTest, TrafficIsReportedAtTheEndIfSomebodyWantsToKnow) {
  const std::string path = absl::StrCat(getenv("TEST_TMPDIR"), "/traffic");
  ASSERT_EQ(setenv("SOFTDC_TRAFFIC", path.c_str(), 1), 0);
  Probe("files");
  ASSERT_EQ(unsetenv("SOFTDC_TRAFFIC"), 0);
  std::ifstream file(path);
  std::string line;
  ASSERT_TRUE(std::getline(file, line));
  EXPECT_EQ(line, "probe 0 0");
  EXPECT_FALSE(std::getline(file, line));
}

TEST_F(PreloadTest, ProgramThatContainsSoftdcHasBothAndTheirSettingsDoNotMeet) {
  const tools::ProgramRun run =
      tools::RunProgram({"tools/softdc_run", "tests/transport/softdc/preload/own_softdc_probe"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.output, "own_lid 7\npreloaded softdc0\n");
}

}  // namespace preload_test
}  // namespace sluice::softdc
