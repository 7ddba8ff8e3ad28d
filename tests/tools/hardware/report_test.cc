// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/hardware/report_files.h"

namespace sluice::hardware {
namespace report_test {

using ::testing::HasSubstr;

std::string Prefix() { return absl::StrCat(::testing::TempDir(), "/report-", getpid()); }

HardwareReport Sample() {
  HardwareReport report;
  report.set_schema_version(1);
  report.set_device("mlx5_0 (native)");
  report.set_firmware("28.1");
  report.set_vendor_id(0x2c9);
  report.set_vendor_part_id(4129);
  report.set_system("Linux 6.8 x86_64");
  report.set_user("an ordinary user");
  HardwareRow* same = report.add_rows();
  same->set_probe("stream-caps");
  same->set_facts("33");
  same->set_verdict(HARDWARE_AS_SOFTDC);
  same->set_claim("2^6 streams");
  same->set_answer("2^6 streams");
  HardwareRow* other = report.add_rows();
  other->set_probe("wrong-dc-key");
  other->set_facts("13");
  other->set_verdict(HARDWARE_DIFFERS);
  other->set_claim("no answer");
  other->set_answer("REM_ACCESS_ERR");
  other->set_changes("nothing");
  other->set_dial("unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR }");
  HardwareRow* none = report.add_rows();
  none->set_probe("other-gid");
  none->set_facts("193");
  none->set_answer("the port has one GID only");
  report.set_dials(other->dial());
  return report;
}

TEST(ReportTest, TextHasClaimAnswerChangeAndDial) {
  EXPECT_EQ(ReportText(Sample()),
            "device     mlx5_0 (native), vendor 0x02c9, part 4129, firmware 28.1\n"
            "peer       none: both ends on this host\n"
            "system     Linux 6.8 x86_64, as an ordinary user\n"
            "\n"
            "as softdc  stream-caps (facts 33)\n"
            "  claim      2^6 streams\n"
            "  answer     2^6 streams\n"
            "DIFFERS    wrong-dc-key (facts 13)\n"
            "  claim      no answer\n"
            "  answer     REM_ACCESS_ERR\n"
            "  changes    nothing\n"
            "  dial       unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR }\n"
            "not tried  other-gid (facts 193)\n"
            "  why        the port has one GID only\n"
            "\n"
            "3 probes: 1 as softdc, 1 differ, 1 not tried\n"
            "\n"
            "softdc answers as this device with the dials\n"
            "unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR }\n");
}

TEST(ReportTest, FilesGiveTheReportBack) {
  const HardwareReport report = Sample();
  ASSERT_TRUE(WriteReport(report, Prefix()).ok());
  const auto read = ReadReport(Prefix());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), report.SerializeAsString());
  std::ifstream dials(Prefix() + ".dials");
  std::string line;
  std::getline(dials, line);
  EXPECT_EQ(line, report.dials());
}

TEST(ReportTest, StepsStandBeforeTheRows) {
  std::ofstream(Prefix() + ".figures") << "p50 2.1 us\n";
  std::ofstream(Prefix() + ".steps") << "sluice_perf\tok\t12\t" << Prefix() << ".figures\n"
                                     << "perftest\tnot tried: not installed\t0\t\n";
  HardwareReport report = Sample();
  const absl::Status status = AddSteps(Prefix() + ".steps", &report);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(ReportText(report), HasSubstr("step       sluice_perf: ok, 12 s\n"
                                            "             p50 2.1 us\n"
                                            "step       perftest: not tried: not installed, 0 s\n"
                                            "\n"
                                            "as softdc"));
}

TEST(ReportTest, WhatIsNoReportOrNoStepIsSaid) {
  EXPECT_EQ(ReadReport(Prefix() + "-none").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(Prefix() + "-bad.json") << "{ \"rows\": 7";
  EXPECT_EQ(ReadReport(Prefix() + "-bad").status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(Prefix() + "-bad.steps") << "a line\n";
  HardwareReport report;
  EXPECT_EQ(AddSteps(Prefix() + "-bad.steps", &report).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(WriteReport(report, "/nowhere/at/all").ok());
}

}  // namespace report_test
}  // namespace sluice::hardware
