// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "transport/softdc/verbs.h"

namespace sluice::hardware {
namespace probe_test {

using ::testing::HasSubstr;

HardwareReport Answers(const Nic& nic, const std::string& pattern) {
  const Scene scene{nic,
                    [&](const TargetOptions& wanted) { return LocalTarget::Create(nic, wanted); }};
  return RunProbes(scene, pattern, [](const HardwareRow&) {});
}

TEST(ProbeTest, EachHasANameFactsAClaimAndWhatItChanges) {
  std::set<std::string> names;
  for (const Probe& probe : AllProbes()) {
    EXPECT_TRUE(names.insert(std::string(probe.name)).second) << probe.name;
    EXPECT_EQ(probe.facts.find_first_not_of("0123456789, "), std::string::npos) << probe.name;
    EXPECT_FALSE(probe.facts.empty() || probe.claim.empty() || probe.changes.empty()) << probe.name;
  }
}

// As on soft RoCE.
TEST(ProbeTest, WithoutDcTheRestIsAskedAllTheSame) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  (*nic)->no_dc = "mlx5dv_create_qp (DCI) failed with EOPNOTSUPP";
  const HardwareReport report = Answers(**nic, "");
  EXPECT_EQ(static_cast<size_t>(report.rows_size()), AllProbes().size());
  int asked = 0;
  for (const HardwareRow& row : report.rows()) {
    if (row.verdict() != HARDWARE_NOT_TRIED) {
      ++asked;
      continue;
    }
    EXPECT_THAT(row.answer(), HasSubstr("not on this device: no DC (mlx5dv_create_qp"));
  }
  EXPECT_EQ(asked, 5);  // port, limits, atomics, signatures and their pipelining
}

// A target that can't be made is a row, never the end of the run.
TEST(ProbeTest, FailureIsARow) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  const Scene scene{**nic, [](const TargetOptions&) -> absl::StatusOr<std::unique_ptr<Target>> {
                      return absl::UnavailableError("the peer has gone");
                    }};
  int told = 0;
  const HardwareReport report = RunProbes(scene, "t", [&](const HardwareRow&) { ++told; });
  EXPECT_EQ(told, report.rows_size());
  for (const HardwareRow& row : report.rows()) {
    if (row.probe() != "time-to-the-error" && row.probe() != "unsignalled-flush") continue;
    EXPECT_EQ(row.verdict(), HARDWARE_NOT_TRIED);
    EXPECT_EQ(row.answer(), "the peer has gone");
  }
}

TEST(NicTest, WhatIsNotThereIsSaidWithWhatThereIs) {
  const auto none = Nic::Open({&softdc::Verbs()}, "mlx5_77");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("there are: softdc0"));
  // A software device is no hardware, unless it is named.
  EXPECT_THAT(std::string(Nic::Open({&softdc::Verbs()}, "auto").status().message()),
              HasSubstr("no mlx5 device on this host"));
  EXPECT_FALSE(Nic::Open({&softdc::Verbs()}, "softdc0:7").ok());
}

TEST(TargetTest, RefusesWhatIsOutOfRange) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  for (const TargetOptions& options :
       {TargetOptions{.receives = 4097}, TargetOptions{.receive_bytes = 0},
        TargetOptions{.receive_bytes = 8193}, TargetOptions{.cqe = 0},
        TargetOptions{.cqe = 65537}}) {
    EXPECT_EQ(LocalTarget::Create(**nic, options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  auto target = LocalTarget::Create(**nic, {});
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_FALSE((*target)->BeginWatch(7).ok());
  EXPECT_FALSE((*target)->BeginWatch(2 << 20).ok());
  EXPECT_TRUE((*target)->BeginWatch(264).ok());
  EXPECT_FALSE((*target)->BeginWatch(264).ok());  // one at a time
  EXPECT_TRUE((*target)->EndWatch().ok());
}

}  // namespace probe_test
}  // namespace sluice::hardware
