// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/config/config.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transport/softdc/config/personalities/personalities.h"

namespace sluice::softdc {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Complaint(std::string_view text) {
  const auto dials = ParseDials(text);
  EXPECT_EQ(dials.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(dials.status().message());
}

TEST(ParseDials, EmptyTextGivesTheDefaultsOfTheStruct) {
  const auto dials = ParseDials("");
  ASSERT_TRUE(dials.ok()) << dials.status();
  EXPECT_EQ(*dials, Dials{});
}

TEST(ParseDials, SettingsOfEveryGroupAreTaken) {
  const auto dials = ParseDials(R"(
    # comments are allowed
    streams { max_log_errored: 0 cqe_order: PER_STREAM error_state_delay_ns: 5000 }
    unknowns { wrong_dc_key: REMOTE_ACCESS_ERROR fence_scope: STREAM full_receive_cq: WAIT
               foreign_gid: LOST unsignalled_flush: NO_COMPLETION }
    features { in_order: BLOCKS_128 ece: false ece_options: 0x7 signature: false }
    port { link_layer: INFINIBAND lid: 17 roce_v1: V1_LAST second_device: true active_mtu: 1024 second_pkey: 0x8001 }
    limits { max_cqe: 64 max_inline_bytes: 0 }
    cm { retry_ns: 1000000 max_attempts: 3 packet_lifetime: 4 static_rate: true flow_labels: true }
    memory { move_private: false }
    retries { min_timeout: 12 timeout_factor: 4 total_retry_ns: 5000 }
  )");
  ASSERT_TRUE(dials.ok()) << dials.status();
  Dials expected;
  expected.streams.max_log_errored = 0;
  expected.streams.cqe_order = CqeOrder::kPerStream;
  expected.streams.error_state_delay_ns = 5000;
  expected.unknowns.wrong_dc_key = WrongDcKey::kRemoteAccessError;
  expected.unknowns.fence_scope = FenceScope::kStream;
  expected.unknowns.full_receive_cq = FullCq::kWait;
  expected.unknowns.foreign_gid = ForeignGid::kLost;
  expected.features.in_order = InOrder::kBlocks128;
  expected.features.ece = false;
  expected.features.ece_options = 7;
  expected.features.signature = false;
  expected.features.signature_pipelining = false;  // follows
  expected.port.link_layer = LinkLayer::kInfiniband;
  expected.port.lid = 17;
  expected.port.roce_v1 = RoceV1::kAfter;
  expected.port.second_device = true;
  expected.limits.max_cqe = 64;
  expected.limits.max_inline_bytes = 0;
  expected.cm.retry_ns = 1'000'000;
  expected.cm.max_attempts = 3;
  expected.cm.packet_lifetime = 4;
  expected.cm.static_rate = true;
  expected.cm.flow_labels = true;
  expected.memory.move_private = false;
  expected.retries = {.min_timeout = 12, .timeout_factor = 4, .total_retry_ns = 5000};
  expected.port.active_mtu = 1024;
  expected.port.second_pkey = 0x8001;
  expected.unknowns.unsignalled_flush = UnsignalledFlush::kSilent;
  EXPECT_EQ(*dials, expected);
}

TEST(ParseDials, MisspeltSettingIsRefusedWithItsNameAndPlace) {
  EXPECT_THAT(Complaint("streams {\n  max_log_erored: 2 }"),
              AllOf(HasSubstr("line 2"), HasSubstr("max_log_erored")));
  EXPECT_THAT(Complaint("features { in_order: SOMETIMES }"), HasSubstr("SOMETIMES"));
  EXPECT_THAT(Complaint("features { in_order"), HasSubstr("line 1"));
}

TEST(ParseDials, ImpossibleSettingIsRefusedWithWhatIsAllowed) {
  EXPECT_THAT(Complaint("limits { max_sge: 31 }"),
              AllOf(HasSubstr("limits.max_sge is 31"), HasSubstr("1 to 30")));
  EXPECT_THAT(Complaint("streams { max_log_concurrent: 300 }"), HasSubstr("0 to 15"));
  EXPECT_THAT(Complaint("streams { max_log_concurrent: 2 max_log_errored: 3 }"),
              HasSubstr("above streams.max_log_concurrent"));
  EXPECT_THAT(Complaint("features { signature: false signature_pipelining: true }"),
              HasSubstr("without features.signature"));
  EXPECT_THAT(Complaint("cm { retry_ns: -1 }"), HasSubstr("cm.retry_ns is -1"));
  EXPECT_THAT(Complaint("port { lid: 65536 }"), HasSubstr("port.lid"));
  EXPECT_THAT(Complaint("port { active_mtu: 1500 }"),
              AllOf(HasSubstr("port.active_mtu is 1500"), HasSubstr("1024, 2048")));
  EXPECT_THAT(Complaint("retries { timeout_factor: 0 }"), HasSubstr("1 to 16"));
}

TEST(CheckDials, WhatCodeFilledInIsCheckedAsText) {
  Dials dials;
  EXPECT_TRUE(CheckDials(dials).ok());
  dials.features.signature = false;
  EXPECT_FALSE(CheckDials(dials).ok());
  dials = Dials{};
  dials.limits.max_cqe = 0;
  EXPECT_THAT(std::string(CheckDials(dials).message()), HasSubstr("limits.max_cqe"));
}

TEST(Personalities, AreAllTakenAndNoTwoAreTheSame) {
  ASSERT_FALSE(Personalities().empty());
  EXPECT_EQ(Personalities()[0].name, "as_documented");
  std::map<std::string, std::string> names;
  for (const Personality& personality : Personalities()) {
    const auto dials = ParseDials(personality.dials);
    ASSERT_TRUE(dials.ok()) << personality.name << ": " << dials.status();
    const auto [other, is_new] = names.emplace(PrintDials(*dials), personality.name);
    EXPECT_TRUE(is_new) << personality.name << " is " << other->second;
  }
  EXPECT_EQ(names[""], "as_documented");
}

TEST(LoadDials, FileIsReadAndNamedInComplaints) {
  const std::string name = testing::TempDir() + "softdc_config_" + std::to_string(getpid());
  std::ofstream(name) << "port { lid: 5 }";
  const auto dials = LoadDials("@" + name);
  ASSERT_TRUE(dials.ok()) << dials.status();
  EXPECT_EQ(dials->port.lid, 5);
  std::ofstream(name) << "port { lid: 0 }";
  EXPECT_THAT(std::string(LoadDials("@" + name).status().message()),
              AllOf(HasSubstr(name), HasSubstr("port.lid is 0")));
  std::remove(name.c_str());
  EXPECT_EQ(LoadDials("@" + name).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(LoadDials("@" + testing::TempDir()).status().code(), absl::StatusCode::kNotFound);
}

TEST(PrintDials, ShowsWhatDiffersAndReadsBack) {
  EXPECT_EQ(PrintDials(Dials{}), "");
  Dials dials;
  dials.streams.max_log_errored = 0;
  dials.features.in_order = InOrder::kNone;
  const std::string text = PrintDials(dials);
  EXPECT_EQ(text, "streams { max_log_errored: 0 } features { in_order: NONE }");
  const auto again = ParseDials(text);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, dials);
}

}  // namespace
}  // namespace sluice::softdc
