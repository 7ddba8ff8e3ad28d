// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "google/protobuf/util/json_util.h"
#include "proto/device_info.pb.h"
#include "tests/tools/program_run.h"

namespace sluice::tools {
namespace sluice_info_test {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr char kInfo[] = "tools/sluice_info";
constexpr char kPerf[] = "tools/sluice_perf";

TEST(SluiceInfoTest, JsonHasTheSoftwareDeviceWithItsFiveCapabilities) {
  const ProgramRun run = RunProgram({kInfo, "--json", "-"});
  EXPECT_EQ(run.exit_code, 0);
  SystemInfo system;
  const auto parsed = google::protobuf::util::JsonStringToMessage(run.output, &system);
  ASSERT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << run.output;
  EXPECT_EQ(system.schema_version(), 1u);
  EXPECT_FALSE(system.build().version().empty());
  EXPECT_FALSE(system.build().compiler().empty());
  EXPECT_FALSE(system.auto_choice().empty());
  EXPECT_THAT(system.auto_reason(), HasSubstr(system.auto_choice()));
  EXPECT_GT(system.defaults_size(), 0);

  const auto device = std::find_if(system.devices().begin(), system.devices().end(),
                                   [](const DeviceInfo& d) { return d.name() == "softdc0"; });
  ASSERT_NE(device, system.devices().end());
  EXPECT_EQ(device->provider(), "softdc");
  EXPECT_EQ(device->open_error(), "");
  EXPECT_EQ(device->node_guid().size(), 16u);
  ASSERT_EQ(device->capabilities_size(), 5);
  for (const CapabilityInfo& capability : device->capabilities()) {
    EXPECT_FALSE(capability.why().empty()) << capability.name();
    EXPECT_FALSE(capability.fallback().empty()) << capability.name();
  }
  EXPECT_EQ(device->capabilities(0).name(), "stream isolation");
  EXPECT_TRUE(device->capabilities(0).on());
  ASSERT_EQ(device->ports_size(), 1);
  EXPECT_THAT(device->ports(0).state(), HasSubstr("ACTIVE"));
  EXPECT_GT(device->ports(0).gids_size(), 0);
  EXPECT_GT(device->limits_size(), 0);
}

TEST(SluiceInfoTest, TextForPeople) {
  const ProgramRun run = RunProgram({kInfo});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* part : {"Sluice ", "device softdc0", "GID", "partition key   0  0xffff",
                           "stream isolation", "limits", "--device=auto takes", "defaults"}) {
    EXPECT_THAT(run.output, HasSubstr(part));
  }
}

TEST(SluiceInfoTest, PeerIsConnectedToAndDescribed) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1);
  auto server = ChildProcess::Start({kPerf, "serve", "--listen=127.0.0.1:0", "--device=softdc0"});
  ASSERT_TRUE(server.ok()) << server.status();
  const auto address = ListeningAddress(**server, absl::Seconds(30));
  ASSERT_TRUE(address.ok()) << address.status();

  const ProgramRun text = RunProgram({kInfo, "--peer", *address, "--device=softdc0"});
  EXPECT_EQ(text.exit_code, 0);
  for (const char* part :
       {"connection to", "QP number", "ECE accepted", "template DCI", "address handle",
        "mapped to QP", "peer's epoch", "authentication",
        "any host that reaches the port may connect", "reads in flight", "ECE offered",
        "first on this handle", "shared DCT", "as the device presets it", "numbers_quarantined",
        "numbers_exhausted", "map_failures"}) {
    EXPECT_THAT(text.output, HasSubstr(part));
  }

  const std::string file = ::testing::TempDir() + "/sluice_info_path.textproto";
  std::ofstream(file) << "channel { path { traffic_class: 106 service_level: 3 gid_index: 0 } }";
  const ProgramRun path = RunProgram({kInfo, "--peer", *address, "--config=" + file});
  EXPECT_EQ(path.exit_code, 0);
  EXPECT_THAT(path.output, HasSubstr("service level 3"));
  EXPECT_THAT(path.output, HasSubstr("GID index 0, traffic class 106, partition key at index 0"));

  const ProgramRun json = RunProgram({kInfo, "--peer", *address, "--json", "-"});
  EXPECT_EQ(json.exit_code, 0);
  ConnectionInfo connection;
  const auto parsed = google::protobuf::util::JsonStringToMessage(json.output, &connection);
  ASSERT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << json.output;
  EXPECT_EQ(connection.address(), *address);
  EXPECT_NE(connection.qp_number(), 0u);
  EXPECT_NE(connection.accepted().options(), 0u);
  EXPECT_EQ(connection.accepted().options(), connection.received().options());
  EXPECT_NE(connection.own_epoch(), connection.peer_epoch());
  EXPECT_FALSE(connection.authenticated());
  EXPECT_GE(connection.mtu_bytes(), 256u);
  EXPECT_TRUE(connection.mapped() && connection.first_on_handle());
  EXPECT_EQ(connection.why_unmapped(), "");
  EXPECT_NE(connection.receiving().vendor_id(), 0u);
  EXPECT_EQ(connection.receiving().options(), 0u);
  std::map<std::string, uint64_t> counts;
  for (const LimitInfo& count : connection.counts()) counts[count.name()] = count.value();
  EXPECT_EQ(counts.at("numbers_live"), 1u);
  EXPECT_EQ(counts.at("numbers_quarantined"), 0u);
  EXPECT_EQ(counts.at("numbers_exhausted"), 0u);
  EXPECT_EQ(counts.at("handles_in_use"), 1u);
  EXPECT_EQ(counts.at("handles_made"), 1u);
}

TEST(SluiceInfoTest, PeerThatCannotBeReachedOrNamed) {
  EXPECT_EQ(RunProgram({kInfo, "--peer", "127.0.0.1:1", "--device=softdc0"}).exit_code, 1);
  EXPECT_EQ(RunProgram({kInfo, "--peer", "127.0.0.1:1", "--secret_file=/no/such/file"}).exit_code,
            1);
  EXPECT_EQ(RunProgram({kInfo, "--peer", "127.0.0.1"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kInfo, "--peer", "127.0.0.1:0"}).exit_code, 2);
}

TEST(SluiceInfoTest, JsonIntoAFileLeavesTheTextOnStandardOutput) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/info.json");
  const ProgramRun run = RunProgram({kInfo, "--json=" + path});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, HasSubstr("device softdc0"));
  EXPECT_EQ(access(path.c_str(), R_OK), 0);
}

TEST(SluiceInfoTest, FileThatCannotBeWrittenIsAFailure) {
  EXPECT_EQ(RunProgram({kInfo, "--json=/no/such/folder/info.json"}).exit_code, 1);
}

TEST(SluiceInfoTest, CheckSaysByItsExitCodeWhetherSomethingBlocks) {
  const ProgramRun run = RunProgram({kInfo, "--check", "--json=-"});
  CheckReport report;
  const auto parsed = google::protobuf::util::JsonStringToMessage(run.output, &report);
  ASSERT_TRUE(parsed.ok()) << parsed.ToString() << "\n" << run.output;
  EXPECT_EQ(run.exit_code, report.blocked() ? 1 : 0);
  EXPECT_GE(report.findings_size(), 5);
}

TEST(SluiceInfoTest, ConfigListsOptionsAndWhereTheyComeFrom) {
  const std::string all = RunProgram({kInfo, "--config"}).output;
  EXPECT_THAT(all,
              ContainsRegex("\nserver\\.slow_call +100ms +default +100ms +1us to 1h  +time after"));
  // However long what is allowed: the last column begins at the same place in each line.
  const std::vector<std::string> lines = absl::StrSplit(all, '\n', absl::SkipEmpty());
  const size_t meaning = lines[0].find("meaning");
  for (const std::string& line : lines) {
    ASSERT_GT(line.size(), meaning) << line;
    EXPECT_EQ(line.substr(meaning - 2, 2), "  ") << line;
    EXPECT_NE(line[meaning], ' ') << line;
  }
  const std::string path = absl::StrCat(::testing::TempDir(), "/info.textproto");
  std::ofstream(path) << "server { slow_call: '20ms' trace_recrods: 1 }";
  setenv("SLUICE_SERVER_TRACE_RECORDS", "64", 1);
  const ProgramRun run = RunProgram({kInfo, "--config=" + path, "--env"});
  unsetenv("SLUICE_SERVER_TRACE_RECORDS");
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_THAT(run.output, ContainsRegex("server\\.slow_call +20ms +file"));
  EXPECT_THAT(run.output, ContainsRegex("server\\.trace_records +64 +environment"));
  std::ofstream(path) << "server { slow_call: '0' }";
  EXPECT_EQ(RunProgram({kInfo, "--config=" + path}).exit_code, 1);
  EXPECT_EQ(RunProgram({kInfo, "--config=/no/such/file"}).exit_code, 1);
}

TEST(SluiceInfoTest, WrongUsageIsExitCode2) {
  EXPECT_EQ(RunProgram({kInfo, "--jsn=-"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kInfo, "softdc0"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kInfo, "--json"}).exit_code, 2);
}

}  // namespace sluice_info_test
}  // namespace sluice::tools
