// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/hardware/dial_file.h"
#include "tools/hardware/report.h"
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
    EXPECT_EQ(row.answer(), kNoDc);
  }
  EXPECT_EQ(asked, 6);  // DC, port, limits, atomics, signatures and their pipelining
  EXPECT_EQ(report.dials(), "features { dc: false }");
}

// It is said once, with what it changes; the probes that need DC are one line.
TEST(ProbeTest, WithoutDcTheReportIsShort) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  (*nic)->no_dc = "mlx5dv_create_qp (DCI) failed with EOPNOTSUPP";
  std::vector<std::string> told;
  const Scene scene{**nic,
                    [&](const TargetOptions& wanted) -> absl::StatusOr<std::unique_ptr<Target>> {
                      return LocalTarget::Create(**nic, wanted);
                    }};
  const HardwareReport report =
      RunProbes(scene, "", [&](const HardwareRow& row) { told.push_back(row.probe()); });
  EXPECT_EQ(told.size(), 6u);
  const std::string text = ReportText(report);
  EXPECT_THAT(text, HasSubstr("DIFFERS    dc (facts 1)\n"
                              "  claim      DCIs and DCTs are made\n"
                              "  answer     mlx5dv_create_qp (DCI) failed with EOPNOTSUPP\n"));
  EXPECT_THAT(text, HasSubstr("not tried  time-to-the-error, wrong-dc-key, "));
  EXPECT_THAT(text, HasSubstr("\n  why        no DC\n\n29 probes: "));
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

// Late by up to 20 ms, twice alike: neither the nominal time nor a multiple of it.
TEST(ProbeTest, RoundsThatAreLateAlikeDoNotEndTheMeasurement) {
  constexpr double kNominal = 33.6e6;
  EXPECT_FALSE(RoundsAgree(0, 34e6, kNominal));
  EXPECT_FALSE(RoundsAgree(51.3e6, 52e6, kNominal));
  EXPECT_FALSE(RoundsAgree(52e6, 51.3e6, kNominal));
  EXPECT_FALSE(RoundsAgree(34e6, 52e6, kNominal));
  EXPECT_FALSE(RoundsAgree(17e6, 17e6, kNominal));  // a fixed time below it
  EXPECT_TRUE(RoundsAgree(34e6, 34.5e6, kNominal));
  EXPECT_TRUE(RoundsAgree(2 * 34e6, 2 * 34.5e6, kNominal));
  EXPECT_TRUE(RoundsAgree(6 * 34e6, 6 * 33.8e6, kNominal));
}

// Times of time-to-the-error on a device with these dials.
std::vector<RetryTime> TimesWith(int min_timeout, double factor, double late_ns = 0) {
  std::vector<RetryTime> times = {{12, 1}, {12, 3}, {14, 1}, {14, 3}, {15, 3}};
  for (RetryTime& time : times) {
    const double timeout_ns = 4096.0 * std::exp2(std::max<int>(time.timeout, min_timeout));
    time.took_ns = timeout_ns * (time.retries + 1) * factor + late_ns;
  }
  return times;
}

std::string DialText(const std::vector<RetryTime>& times) {
  DialFile file;
  for (const Dial& dial : RetryDials(times)) file.Set(dial);
  return file.Text(" ");
}

TEST(ProbeTest, MinimumTimeoutAboveAllAttemptsIsNoFixedTime) {
  EXPECT_EQ(DialText(TimesWith(0, 1)), "");
  EXPECT_EQ(DialText(TimesWith(0, 4)), "retries { timeout_factor: 4 }");
  EXPECT_EQ(DialText(TimesWith(13, 3)), "retries { min_timeout: 13 timeout_factor: 3 }");
  for (const int minimum : {13, 14, 15, 16, 18}) {
    const std::string expected = absl::StrCat("retries { min_timeout: ", minimum, " }");
    EXPECT_EQ(DialText(TimesWith(minimum, 1)), expected);
    EXPECT_EQ(DialText(TimesWith(minimum, 1, 5e6)), expected);  // late by 5 ms
  }
  EXPECT_EQ(DialText(TimesWith(16, 4)), "retries { min_timeout: 18 }");  // takes the same times

  std::vector<RetryTime> fixed = TimesWith(0, 1);
  for (RetryTime& time : fixed) time.took_ns = 300e6;
  fixed[2].took_ns = 340e6;
  EXPECT_EQ(DialText(fixed), "retries { total_retry_ns: 300000000 }");
}

// A target of this process, at the address and with the count of a test.
class OtherTarget final : public Target {
 public:
  OtherTarget(std::unique_ptr<Target> inner, int* living)
      : inner_(std::move(inner)), living_(living) {
    address_ = inner_->address();
    ++*living_;
  }
  ~OtherTarget() override { --*living_; }
  absl::Status PostReceives(uint32_t count) override { return inner_->PostReceives(count); }
  absl::StatusOr<std::optional<Receipt>> AwaitReceive(absl::Duration timeout) override {
    return inner_->AwaitReceive(timeout);
  }
  absl::Status BeginWatch(uint32_t bytes) override { return inner_->BeginWatch(bytes); }
  absl::StatusOr<WatchCount> EndWatch() override {
    const auto counted = inner_->EndWatch();
    return count.has_value() ? *count : counted;
  }
  void MoveTo(uint32_t dctn) { address_.dctn = dctn; }
  std::optional<WatchCount> count;

 private:
  const std::unique_ptr<Target> inner_;
  int* const living_;
};

TEST(ProbeTest, WatchThatSawNothingAnswersNothing) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  int living = 0;
  WatchCount count;
  const Scene scene{**nic,
                    [&](const TargetOptions& wanted) -> absl::StatusOr<std::unique_ptr<Target>> {
                      auto target = LocalTarget::Create(**nic, wanted);
                      if (!target.ok()) return target.status();
                      auto other = std::make_unique<OtherTarget>(*std::move(target), &living);
                      other->count = count;
                      return other;
                    }};
  const auto verdict = [&] {
    return RunProbes(scene, "last-word-264", [](const HardwareRow&) {}).rows(0).verdict();
  };
  EXPECT_EQ(verdict(), HARDWARE_NOT_TRIED);
  count = {.seen = 9, .torn = 0, .torn_blocks = 0};
  EXPECT_EQ(verdict(), HARDWARE_AS_SOFTDC);
  count = {.seen = 9, .torn = 1, .torn_blocks = 0};
  EXPECT_EQ(verdict(), HARDWARE_DIFFERS);
}

// Firmware may give out a freed number at once: the target that has gone is made when the living one has its number.
TEST(ProbeTest, DeadNumberIsNoLivingTargets) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  int living = 0;
  bool same = false;
  std::vector<int> beside;
  uint32_t first = 0;
  const Scene scene{**nic,
                    [&](const TargetOptions& wanted) -> absl::StatusOr<std::unique_ptr<Target>> {
                      auto target = LocalTarget::Create(**nic, wanted);
                      if (!target.ok()) return target.status();
                      beside.push_back(living);
                      auto other = std::make_unique<OtherTarget>(*std::move(target), &living);
                      if (beside.size() == 1) first = other->address().dctn;
                      if (same) other->MoveTo(first);
                      return other;
                    }};
  for (const char* probe : {"cqe-order", "more-labels-than-streams", "fence-scope"}) {
    same = false;
    beside.clear();
    HardwareRow row = RunProbes(scene, probe, [](const HardwareRow&) {}).rows(0);
    EXPECT_EQ(row.verdict(), HARDWARE_AS_SOFTDC) << row.DebugString();
    EXPECT_EQ(beside, std::vector<int>({0, 1})) << probe;
    same = true;
    beside.clear();
    row = RunProbes(scene, probe, [](const HardwareRow&) {}).rows(0);
    EXPECT_EQ(row.verdict(), HARDWARE_NOT_TRIED) << row.DebugString();
    EXPECT_THAT(row.answer(), HasSubstr("two DCTs have the number"));
  }
}

TEST(ProbeTest, SignatureTrialSaysThatPollingFailed) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  (*nic)->context.get()->ops.poll_cq = [](ibv_cq*, int, ibv_wc*) { return -1; };
  const HardwareReport report = Answers(**nic, "wrong-crc");
  EXPECT_EQ(report.rows(0).verdict(), HARDWARE_NOT_TRIED) << report.rows(0).DebugString();
  EXPECT_THAT(report.rows(0).answer(), HasSubstr("polling for the configuration of the key"));
}

TEST(NicTest, WhatIsNotThereIsSaidWithWhatThereIs) {
  const auto none = Nic::Open({&softdc::Verbs()}, "mlx5_77");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(none.status().message()), HasSubstr("there are: softdc0"));
  // A software device is no hardware, unless it is named.
  EXPECT_THAT(std::string(Nic::Open({&softdc::Verbs()}, "auto").status().message()),
              HasSubstr("no mlx5 device with an active port"));
  EXPECT_FALSE(Nic::Open({&softdc::Verbs()}, "softdc0:7").ok());
  verbs::VerbsApi second = softdc::Verbs();
  second.get_device_name = [](ibv_device*) -> const char* { return "softdc1"; };
  EXPECT_EQ(Nic::Open({&second}, "auto").status().code(), absl::StatusCode::kNotFound);
}

// An mlx5 device with two ports; those up to this number are down.
int down_ports = 0;
verbs::VerbsApi TwoPorts() {
  verbs::VerbsApi api = softdc::Verbs();
  api.get_device_name = [](ibv_device*) -> const char* { return "mlx5_0"; };
  api.query_device = [](ibv_context* context, ibv_device_attr* attributes) {
    const int error = softdc::Verbs().query_device(context, attributes);
    attributes->phys_port_cnt = 2;
    return error;
  };
  api.query_port = [](ibv_context* context, uint8_t number, ibv_port_attr* port) {
    const int error = softdc::Verbs().query_port(context, 1, port);
    if (number <= down_ports) port->state = IBV_PORT_DOWN;
    return error;
  };
  return api;
}

TEST(NicTest, PortThatIsNotActiveIsPassedOverOrRefused) {
  const verbs::VerbsApi api = TwoPorts();
  down_ports = 0;
  const auto first = Nic::Open({&api}, "auto");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->spec, "mlx5_0");
  down_ports = 1;
  const auto second = Nic::Open({&api}, "auto");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->port_number, 2);
  EXPECT_EQ((*second)->spec, "mlx5_0:2");
  for (const char* spec : {"mlx5_0", "mlx5_0:1"}) {
    const absl::Status refused = Nic::Open({&api}, spec).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << spec;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("port 1 of mlx5_0 is not active"));
  }
  down_ports = 2;
  EXPECT_THAT(std::string(Nic::Open({&api}, "auto").status().message()),
              HasSubstr("mlx5_0 (port 2 is not active)"));
}

TEST(NicTest, PortThatWasGivenStaysWithTheName) {
  const auto given = Nic::Open({&softdc::Verbs()}, "softdc0:1");
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ((*given)->spec, "softdc0:1");
  EXPECT_EQ((*given)->name, "softdc0");
}

// A side that listens at another device's address would be reached there.
TEST(NicTest, AddressToListenAtIsOneOfThePort) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  (*nic)->gids.clear();
  EXPECT_TRUE((*nic)->HasAddress("192.0.2.9").ok());  // nothing to compare with
  for (const uint8_t last : {7, 7, 8}) {
    Gid entry;
    entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
    const uint8_t address[] = {192, 0, 2, last};
    std::copy(std::begin(address), std::end(address), entry.gid.raw + 12);
    (*nic)->gids.push_back(entry);
  }
  EXPECT_TRUE((*nic)->HasAddress("192.0.2.7").ok());
  EXPECT_TRUE((*nic)->HasAddress("192.0.2.8").ok());
  const absl::Status other = (*nic)->HasAddress("192.0.2.9");
  EXPECT_EQ(other.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("192.0.2.9 is no address of softdc0, port 1"));
  EXPECT_THAT(other.message(), HasSubstr("the port has 192.0.2.7, 192.0.2.8;"));
  (*nic)->port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_TRUE((*nic)->HasAddress("192.0.2.9").ok());
}

TEST(TargetTest, RefusesWhatIsOutOfRange) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  for (const TargetOptions& options :
       {TargetOptions{.receives = 4097}, TargetOptions{.receive_bytes = 0},
        TargetOptions{.receive_bytes = 8193}, TargetOptions{.cqe = 0},
        TargetOptions{.cqe = 65537}}) {
    const absl::Status refused = LocalTarget::Create(**nic, options).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("allowed are 0 to 4096, 1 to 8192"));
  }
  auto target = LocalTarget::Create(**nic, {});
  ASSERT_TRUE(target.ok()) << target.status();
  EXPECT_THAT(std::string((*target)->BeginWatch(7).message()), HasSubstr("watch of 7 bytes"));
  EXPECT_FALSE((*target)->BeginWatch(2 << 20).ok());
  EXPECT_TRUE((*target)->BeginWatch(264).ok());
  EXPECT_FALSE((*target)->BeginWatch(264).ok());  // one at a time
  EXPECT_TRUE((*target)->EndWatch().ok());
}

// The last word is new, a word before it old: first out of the last word's 128 bytes, then in them.
TEST(TargetTest, WatchCountsTornMessages) {
  auto nic = Nic::Open({&softdc::Verbs()}, "softdc0");
  ASSERT_TRUE(nic.ok()) << nic.status();
  auto target = LocalTarget::Create(**nic, {});
  ASSERT_TRUE(target.ok()) << target.status();
  constexpr size_t kLast = 33;  // its 128 bytes begin at 32
  for (const size_t old : {size_t{3}, size_t{32}}) {
    absl::StatusOr<WatchCount> count = WatchCount{};
    // The watching thread may not have looked before the watch ends.
    while (count.ok() && count->seen == 0) {
      ASSERT_TRUE((*target)->BeginWatch((kLast + 1) * 8).ok());
      auto* const words = reinterpret_cast<uint64_t*>((*target)->address().memory);
      for (size_t i = 0; i <= kLast; ++i) {
        if (i != old) std::atomic_ref<uint64_t>(words[i]).store(1, std::memory_order_release);
      }
      std::this_thread::yield();
      count = (*target)->EndWatch();
    }
    ASSERT_TRUE(count.ok()) << count.status();
    EXPECT_EQ(count->torn, 1u);
    EXPECT_EQ(count->torn_blocks, old == 32 ? 1u : 0u);
  }
}

}  // namespace probe_test
}  // namespace sluice::hardware
