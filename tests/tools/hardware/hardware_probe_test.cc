// SPDX-License-Identifier: Apache-2.0
//
// The probes on softdc: with its defaults nothing differs; with other dials the report finds each of them, and softdc with the dials
// of that report answers the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/tools/program_run.h"
#include "tools/hardware/rendezvous.h"
#include "tools/hardware/report_files.h"
#include "transport/softdc/config/config.h"

namespace sluice::hardware {
namespace hardware_probe_test {

using ::testing::HasSubstr;
using tools::ChildProcess;
using tools::ProgramRun;
using tools::RunProgram;

constexpr char kProbe[] = "tools/hardware/hardware_probe";

std::string Prefix(const std::string& name) {
  return absl::StrCat(::testing::TempDir(), "/", name, "-", getpid());
}

HardwareReport RunWith(const std::string& dials, const std::string& name) {
  setenv("SOFTDC_CONFIG", dials.c_str(), 1);
  const ProgramRun run = RunProgram({kProbe, "--device=softdc0", "--report", Prefix(name)});
  unsetenv("SOFTDC_CONFIG");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  auto report = ReadReport(Prefix(name));
  EXPECT_TRUE(report.ok()) << report.status();
  return report.value_or(HardwareReport());
}

softdc::Dials Parsed(const std::string& text) {
  const auto dials = softdc::ParseDials(text);
  EXPECT_TRUE(dials.ok()) << dials.status() << "\n" << text;
  return dials.value_or(softdc::Dials());
}

// What is measured in time is never the same twice.
std::map<std::string, HardwareVerdict> Verdicts(const HardwareReport& report) {
  std::map<std::string, HardwareVerdict> verdicts;
  for (const HardwareRow& row : report.rows()) verdicts[row.probe()] = row.verdict();
  return verdicts;
}

TEST(HardwareProbeTest, NothingDiffersWithTheDefaults) {
  const HardwareReport report = RunWith("", "defaults");
  EXPECT_EQ(report.device(), "softdc0 (softdc)");
  EXPECT_GE(report.rows_size(), 28);
  for (const HardwareRow& row : report.rows()) {
    EXPECT_NE(row.verdict(), HARDWARE_DIFFERS) << row.DebugString();
    if (row.probe() == "mtu-above-active") continue;  // 4096 is the largest that there is
    EXPECT_EQ(row.verdict(), HARDWARE_AS_SOFTDC) << row.DebugString();
  }
  EXPECT_EQ(report.dials(), "");
}

TEST(HardwareProbeTest, FindsEveryDialAndItsDialFileAnswersTheSame) {
  constexpr char kDials[] =
      "streams { max_log_concurrent: 5 max_log_errored: 3 error_state_delay_ns: 500000000"
      " cqe_order: PER_STREAM }"
      "unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR fence_scope: STREAM too_long_at_target: SILENT"
      " full_receive_cq: WAIT foreign_gid: LOST unsignalled_flush: NO_COMPLETION }"
      "features { in_order: BLOCKS_128 ece_options: 1 ah_mapping: false reserved_qpns: false"
      " signature: false signature_pipelining: false atomics: false }"
      "port { roce_v1: V1_FIRST active_mtu: 1024 }"
      "limits { max_send_wr: 4096 max_sge: 16 max_inline_bytes: 256 max_cqe: 65535 max_srq_wr: "
      "16384"
      " max_rd_atomic: 8 max_message_bytes: 1048576 }"
      "retries { min_timeout: 13 timeout_factor: 3 }";
  const HardwareReport first = RunWith(kDials, "first");
  softdc::Dials wanted = Parsed(kDials);
  softdc::Dials found = Parsed(first.dials());
  EXPECT_GE(found.streams.error_state_delay_ns, wanted.streams.error_state_delay_ns);
  wanted.streams.error_state_delay_ns = found.streams.error_state_delay_ns;
  EXPECT_EQ(found, wanted) << first.dials();
  for (const HardwareRow& row : first.rows()) {
    if (row.verdict() != HARDWARE_DIFFERS) continue;
    EXPECT_FALSE(row.dial().empty()) << row.DebugString();
    EXPECT_FALSE(row.changes().empty()) << row.DebugString();
  }

  const HardwareReport second = RunWith(first.dials(), "second");
  softdc::Dials again = Parsed(second.dials());
  EXPECT_GE(again.streams.error_state_delay_ns, found.streams.error_state_delay_ns);
  again.streams.error_state_delay_ns = found.streams.error_state_delay_ns;
  EXPECT_EQ(again, found) << second.dials();
  EXPECT_EQ(Verdicts(second), Verdicts(first));
}

// What excludes the above: a fixed time, no streams, no order, no ECE, InfiniBand.
TEST(HardwareProbeTest, FindsTheDialsThatExcludeOthers) {
  constexpr char kDials[] =
      "streams { enabled: false } features { in_order: NONE ece: false }"
      "port { link_layer: INFINIBAND lid: 7 } retries { total_retry_ns: 300000000 }";
  const HardwareReport report = RunWith(kDials, "others");
  softdc::Dials wanted = Parsed(kDials);
  const softdc::Dials found = Parsed(report.dials());
  EXPECT_GE(found.retries.total_retry_ns, wanted.retries.total_retry_ns);
  wanted.retries.total_retry_ns = found.retries.total_retry_ns;
  EXPECT_EQ(found, wanted) << report.dials();
  EXPECT_EQ(Verdicts(report)["cqe-order"], HARDWARE_NOT_TRIED);
  EXPECT_EQ(Verdicts(RunWith(report.dials(), "others-again")), Verdicts(report));
}

TEST(HardwareProbeTest, DeviceWithoutErroredStreamsIsNotAskedForTheirReset) {
  const HardwareReport report = RunWith("streams { max_log_errored: 0 }", "none-errored");
  EXPECT_EQ(Parsed(report.dials()), Parsed("streams { max_log_errored: 0 }")) << report.dials();
  EXPECT_EQ(Verdicts(report)["stream-reset"], HARDWARE_NOT_TRIED);
  EXPECT_EQ(Verdicts(report)["stream-caps"], HARDWARE_DIFFERS);
}

// More labels than the target's usual receives.
TEST(HardwareProbeTest, ThousandStreamsAreAllSentTo) {
  setenv("SOFTDC_CONFIG", "streams { max_log_concurrent: 10 }", 1);
  const ProgramRun run = RunProgram(
      {kProbe, "--device=softdc0", "--only=more-labels", "--report", Prefix("thousand")});
  unsetenv("SOFTDC_CONFIG");
  EXPECT_EQ(run.exit_code, 0) << run.output;
  const auto report = ReadReport(Prefix("thousand"));
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->rows_size(), 1);
  EXPECT_EQ(report->rows(0).verdict(), HARDWARE_AS_SOFTDC) << report->rows(0).DebugString();
}

// Two processes: each asks the targets of the other.
TEST(HardwareProbeTest, BothSidesOfARendezvousReport) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1);
  auto listener = ChildProcess::Start({kProbe, "--device=softdc0", "--listen=127.0.0.1:0",
                                       "--only=o", "--report", Prefix("listener")});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto address = tools::ListeningAddress(**listener, absl::Seconds(50));
  ASSERT_TRUE(address.ok()) << address.status();
  const ProgramRun peer = RunProgram(
      {kProbe, "--device=softdc0", "--peer", *address, "--only=o", "--report", Prefix("peer")});
  EXPECT_EQ(peer.exit_code, 0) << peer.output;
  const auto rest = (*listener)->ReadAll(absl::Seconds(50));
  EXPECT_EQ((*listener)->Wait(absl::Seconds(50)).value_or(-1), 0) << rest.value_or("");
  for (const char* name : {"listener", "peer"}) {
    const auto report = ReadReport(Prefix(name));
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->peer(), HasSubstr("softdc0 on "));
    EXPECT_GT(report->rows_size(), 15);
    EXPECT_EQ(report->dials(), "");
    for (const HardwareRow& row : report->rows()) {
      if (row.probe() == "mtu-above-active") continue;
      EXPECT_EQ(row.verdict(), HARDWARE_AS_SOFTDC) << row.DebugString();
    }
  }
}

// The rows that needed it say so, and there is a report.
TEST(HardwareProbeTest, PeerThatHasGoneLeavesAReport) {
  setenv("SOFTDC_DOMAIN", absl::StrCat("test-", getpid()).c_str(), 1);
  auto listener = ChildProcess::Start(
      {kProbe, "--device=softdc0", "--listen=127.0.0.1:0", "--only=t", "--report", Prefix("left")});
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto address = tools::ListeningAddress(**listener, absl::Seconds(50));
  ASSERT_TRUE(address.ok()) << address.status();
  const uint16_t port = static_cast<uint16_t>(std::stoi(address->substr(address->rfind(':') + 1)));
  auto peer = Rendezvous::Connect("127.0.0.1", port, "gone", absl::Seconds(50));
  ASSERT_TRUE(peer.ok()) << peer.status();
  // Once it is asked for a target, the listener has taken it. Gone before, another is waited for.
  EXPECT_TRUE((*peer)->Receive(absl::Seconds(50)).ok());
  peer->reset();
  EXPECT_EQ((*listener)->Wait(absl::Seconds(50)).value_or(-1), 1);
  const auto report = ReadReport(Prefix("left"));
  ASSERT_TRUE(report.ok()) << report.status();
  int left = 0;
  for (const HardwareRow& row : report->rows()) {
    left += row.answer().find("has gone") != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(left, 5);
  EXPECT_GT(report->rows_size(), left);  // stream-caps, say
}

TEST(HardwareProbeTest, SaysWhatIsWrongWithItsArguments) {
  EXPECT_EQ(RunProgram({kProbe, "--listen=127.0.0.1:1", "--peer=127.0.0.1:1"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kProbe, "--peer=127.0.0.1"}).exit_code, 2);
  EXPECT_EQ(RunProgram({kProbe, "--device=mlx5_77"}).exit_code, 1);
  EXPECT_EQ(RunProgram({kProbe, "--device=softdc0", "--peer=127.0.0.1:1", "--wait=50ms"}).exit_code,
            1);
}

}  // namespace hardware_probe_test
}  // namespace sluice::hardware
