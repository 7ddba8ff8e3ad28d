// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "proto/config.pb.h"

namespace sluice {
namespace config_test {

using Source = Config::Source;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Config::Setting Setting(const Config& config, const std::string& name) {
  for (const Config::Setting& setting : config.Settings()) {
    if (setting.name == name) return setting;
  }
  ADD_FAILURE() << "no option " << name;
  return {};
}

TEST(ConfigTest, FileIsReadByNames) {
  Config config;
  const absl::Status status = config.ReadText(
      "# what this process needs\n"
      "channel { limits { max_message_bytes: 65536 lanes: 'off' } balancing: 'round_robin'\n"
      "          retry { refill: 0.5 } }\n"
      "server { slow_call: '20ms' max_waiting_bytes_per_peer: 8589934592 }\n"
      "messenger { max_flows: 7 authentication { secret_file: '/etc/secret' } }\n",
      "it");
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(config.channel.limits.max_message_bytes, 65536u);
  EXPECT_EQ(config.channel.limits.lanes, Lanes::kOff);
  EXPECT_EQ(config.channel.balancing, Balancing::kRoundRobin);
  EXPECT_EQ(config.channel.retry.refill, 0.5);
  EXPECT_EQ(config.server.slow_call, absl::Milliseconds(20));
  EXPECT_EQ(config.server.max_waiting_bytes_per_peer, 8589934592u);
  EXPECT_EQ(config.messenger.max_flows, 7u);
  EXPECT_EQ(config.messenger.authentication.secret_file, "/etc/secret");
  EXPECT_EQ(config.server.limits.max_message_bytes, ServerOptions().limits.max_message_bytes);
  EXPECT_THAT(config.warnings(), IsEmpty());
}

// Whatever is read first: the flag counts before the file, the file before the environment.
TEST(ConfigTest, OrderOfSourcesNotOfReading) {
  const std::string name = "server.max_concurrent_calls";
  std::vector<int> order = {0, 1, 2};
  do {
    Config config;
    for (const int step : order) {
      if (step == 0) {
        EXPECT_TRUE(config
                        .ReadEnvironment(
                            {"SLUICE_SERVER_MAX_CONCURRENT_CALLS=1", "SLUICE_SERVER_SLOW_CALL=1s"})
                        .ok());
      }
      if (step == 1) {
        EXPECT_TRUE(
            config.ReadText("server { max_concurrent_calls: 2 slow_call: '2s' }", "it").ok());
      }
      if (step == 2) {
        EXPECT_TRUE(config.Set(name, "3", Source::kFlag).ok());
      }
    }
    EXPECT_EQ(config.server.max_concurrent_calls, 3u);
    EXPECT_EQ(config.server.slow_call, absl::Seconds(2));
    EXPECT_EQ(Setting(config, name).source, Source::kFlag);
    EXPECT_EQ(Setting(config, "server.slow_call").source, Source::kFile);
    EXPECT_EQ(Setting(config, "server.trace_records").source, Source::kDefault);
    config.server.max_concurrent_calls = 4;
    EXPECT_EQ(Setting(config, name).source, Source::kCode);
    EXPECT_EQ(Setting(config, name).value, "4");
    EXPECT_EQ(Setting(config, name).default_value, "65536");
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(ConfigTest, UnknownNamesAreWarningsThatNameTheNearest) {
  Config config;
  ASSERT_TRUE(config
                  .ReadText("server {\n  slow_cal: '20ms'\n  limits { keep_alive: '1s' }\n"
                            "  trace_records: 8\n}\nsomething_else { x: 1 }\n",
                            "a.textproto")
                  .ok());
  ASSERT_TRUE(config
                  .ReadEnvironment({"SLUICE_SERVER_SLOW_CALLS=1s", "SLUICE_SERVER_XYZZYPLUGH=1",
                                    "SLUICE_OTHER=1", "PATH=/bin", "SLUICE_SERVER_SPIN"})
                  .ok());
  EXPECT_EQ(config.server.trace_records, 8u);
  EXPECT_EQ(config.server.slow_call, absl::Milliseconds(100));
  EXPECT_THAT(
      config.warnings(),
      ElementsAre("a.textproto:2: unknown option \"slow_cal\"; did you mean slow_call?",
                  "a.textproto:3: unknown option \"keep_alive\"; did you mean keepalive?",
                  "a.textproto:6: unknown option \"something_else\"",
                  "environment: unknown variable \"SLUICE_SERVER_SLOW_CALLS\"; did you mean "
                  "SLUICE_SERVER_SLOW_CALL?",
                  "environment: unknown variable \"SLUICE_SERVER_XYZZYPLUGH\""));
}

TEST(ConfigTest, WhatCannotBeReadIsAnErrorAndNothingOfItIsTaken) {
  const struct {
    const char* text;
    const char* says;
  } kCases[] = {
      {"server { trace_records: 8\n slow_call '1s' }", "it:2"},
      {"server { device: 'x' slow_call: 'soon' }", "no time such as 50us"},
      {"server { trace_records: 8 slow_call: 5 }", "it:1"},
      {"server { trace_records: -1 }", "it:1"},
      {"server { trace_records: 8 limits { lanes: 'maybe' } }", "off, auto, on"},
      {"server {", "it:1"},
      {"\xff\xfe", "it:1"},
  };
  for (const auto& test : kCases) {
    Config config;
    const absl::Status status = config.ReadText(test.text, "it");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << test.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(test.says)) << test.text;
    EXPECT_EQ(config.server.trace_records, ServerOptions().trace_records) << test.text;
    EXPECT_EQ(config.server.device, "auto") << test.text;
  }
  Config config;
  EXPECT_EQ(config.ReadFile("/no/such/file").code(), absl::StatusCode::kNotFound);
  const absl::Status unknown = config.Set("server.slow_cal", "1s", Source::kFlag);
  EXPECT_EQ(unknown.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown.message()), HasSubstr("server.slow_call"));
  const absl::Status variable =
      config.ReadEnvironment({"SLUICE_SERVER_SLOW_CALL=soon", "SLUICE_SERVER_TRACE_RECORDS=8"});
  EXPECT_THAT(std::string(variable.message()), HasSubstr("SLUICE_SERVER_SLOW_CALL"));
  EXPECT_EQ(config.server.trace_records, 8u) << "the others are taken";
}

TEST(ConfigTest, OptionalNumbersAreAutoUnlessTheyAreSet) {
  Config config;
  EXPECT_EQ(config.channel.path.pkey, std::nullopt);
  ASSERT_TRUE(config.ReadText("channel { path { pkey: 0x8001 gid_index: 3 } }", "a").ok());
  EXPECT_EQ(config.channel.path.pkey, 0x8001u);
  EXPECT_EQ(config.channel.path.gid_index, 3u);
  EXPECT_EQ(config.channel.path.traffic_class, std::nullopt);
  ASSERT_TRUE(config.Set("channel.path.pkey", "0x7fff", Config::Source::kFlag).ok());
  EXPECT_EQ(config.channel.path.pkey, 0x7fffu);
  ASSERT_TRUE(config.Set("channel.path.gid_index", "auto", Config::Source::kFlag).ok());
  EXPECT_EQ(config.channel.path.gid_index, std::nullopt);
  const absl::Status bad = config.Set("channel.path.pkey", "mine", Config::Source::kFlag);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("allowed is 1 to 65535, or auto")) << bad;
}

TEST(ConfigTest, FileOfAName) {
  const std::string path = ::testing::TempDir() + "/config_test.textproto";
  std::ofstream(path) << "channel { spin: '1ms' }";
  Config config;
  ASSERT_TRUE(config.ReadFile(path).ok());
  EXPECT_EQ(config.channel.spin, absl::Milliseconds(1));
}

TEST(ConfigTest, EmptyFileSetsNothing) {
  const std::string path = ::testing::TempDir() + "/config_test_empty.textproto";
  std::ofstream(path).flush();
  Config config;
  errno = EACCES;  // of something before
  const absl::Status status = config.ReadFile(path);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(ConfigTest, FileThatCantBeReadSaysWhy) {
  Config config;
  errno = EACCES;
  const absl::Status status = config.ReadFile(::testing::TempDir());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("Is a directory")) << status;
}

// Each field of the .proto is an option, and the other way round.
void CollectNames(const google::protobuf::Descriptor* type, const std::string& prefix,
                  std::set<std::string>* names) {
  for (int i = 0; i < type->field_count(); ++i) {
    const auto* field = type->field(i);
    if (field->message_type() != nullptr) {
      CollectNames(field->message_type(), prefix + field->name() + ".", names);
    } else {
      names->insert(prefix + field->name());
    }
  }
}

TEST(OptionTableTest, IsThatOfTheFile) {
  std::set<std::string> in_file, in_table;
  CollectNames(ConfigFile::descriptor(), "", &in_file);
  for (const Config::Setting& setting : Config().Settings()) {
    EXPECT_TRUE(in_table.insert(setting.name).second) << setting.name;
    EXPECT_FALSE(setting.meaning.empty() || setting.allowed.empty()) << setting.name;
  }
  EXPECT_EQ(in_table, in_file);
}

// The ranges that the table tells are those that Validate() knows, one option at a time.
template <typename Options>
void CheckRanges() {
  const size_t count = [] {
    Options options;
    return OptionsOf(&options).size();
  }();
  for (size_t i = 0; i < count; ++i) {
    const auto holds = [&](double value) {
      Options options;
      const Option option = OptionsOf(&options)[i];
      // Credits are promised out of the buffers.
      if (option.name == "limits.receive_buffers") {
        options.limits.credits_per_peer = 4;
      } else {
        options.limits.receive_buffers = 32768;
      }
      // Each of the two is a limit of the other.
      if constexpr (requires { options.backoff_min; }) {
        options.backoff_min = absl::Milliseconds(1);
        options.backoff_max = absl::Hours(1);
      }
      // Memory for large messages has room for one.
      if (option.name == "limits.large_memory_bytes") options.limits.max_large_message_bytes = 0;
      options.limits.large_memory_bytes = uint64_t{1} << 40;
      std::string text = absl::StrCat(value);
      if (std::holds_alternative<absl::Duration*>(option.value)) {
        text = absl::FormatDuration(absl::Seconds(value));
      } else if (!std::holds_alternative<double*>(option.value)) {
        text = absl::StrCat(static_cast<int64_t>(value));
      }
      const std::string wrong = option.Set(text);
      return wrong.empty() && options.Validate().ok();
    };
    Options options;
    const Option option = OptionsOf(&options)[i];
    if (option.low == 0 && option.high == 0) continue;
    EXPECT_TRUE(holds(option.low)) << option.name;
    if (option.high < UINT32_MAX || option.high > UINT32_MAX) {
      EXPECT_TRUE(holds(option.high)) << option.name;
    }
    const bool fine = std::holds_alternative<absl::Duration*>(option.value) ||
                      std::holds_alternative<double*>(option.value);
    EXPECT_FALSE(holds(option.low - (fine ? 1e-7 : 1))) << option.name << " below " << option.low;
    if (option.high != UINT32_MAX) {
      EXPECT_FALSE(holds(option.high + (fine ? 1e-3 : 1)))
          << option.name << " above " << option.high;
    }
  }
}

TEST(OptionTableTest, RangesAreThoseThatAreChecked) {
  CheckRanges<ChannelOptions>();
  CheckRanges<ServerOptions>();
  CheckRanges<MessengerOptions>();
}

TEST(OptionTableTest, DefaultsAreValidAndReadBack) {
  ChannelOptions options;
  for (const Option& option : OptionsOf(&options)) {
    const std::string text = option.Text();
    EXPECT_EQ(option.Set(text), "") << option.name;
    EXPECT_EQ(option.Text(), text) << option.name;
  }
  EXPECT_TRUE(options.Validate().ok());
}

}  // namespace config_test
}  // namespace sluice
