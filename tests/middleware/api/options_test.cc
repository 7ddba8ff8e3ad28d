// SPDX-License-Identifier: Apache-2.0
#include "middleware/api/options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace sluice {
namespace options_test {

// The error names the option, its value and what is allowed.
void ExpectRefused(const absl::Status& status, const std::string& name, const std::string& value) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
  for (const std::string& part : {name, value, std::string("allowed is")}) {
    EXPECT_NE(std::string(status.message()).find(part), std::string::npos) << status;
  }
}

TEST(OptionsTest, DefaultsAreValid) {
  EXPECT_TRUE(ChannelOptions().Validate().ok());
  EXPECT_TRUE(ServerOptions().Validate().ok());
}

TEST(OptionsTest, ChannelValuesOutOfRange) {
  ChannelOptions options;
  options.device = "";
  ExpectRefused(options.Validate(), "device", "empty");
  options = ChannelOptions();
  options.limits.max_large_message_bytes = uint64_t{1} << 31;
  ExpectRefused(options.Validate(), "max_large_message_bytes", "2147483648");
  options = {};
  options.limits.large_memory_bytes = options.limits.max_large_message_bytes - 1;
  ExpectRefused(options.Validate(), "large_memory_bytes", "134217727");
  options = {};
  options.limits.max_message_bytes = 1023;
  ExpectRefused(options.Validate(), "max_message_bytes", "1023");
  options = ChannelOptions();
  options.limits.max_message_bytes = (1 << 20) + 1;
  ExpectRefused(options.Validate(), "max_message_bytes", "1048577");
  options = ChannelOptions();
  options.limits.credits_per_peer = 3;
  ExpectRefused(options.Validate(), "credits_per_peer", "3");
  options = ChannelOptions();
  options.limits.receive_buffers = 63;
  ExpectRefused(options.Validate(), "receive_buffers", "63");
  options = ChannelOptions();
  options.limits.keepalive = absl::Hours(2);
  ExpectRefused(options.Validate(), "keepalive", "2h");
  options.limits.keepalive = absl::ZeroDuration();
  options.limits.dead_peer_timeout = absl::Milliseconds(9);
  ExpectRefused(options.Validate(), "dead_peer_timeout", "9ms");
  options = {};
  options.limits.path_mtu = 1500;
  ExpectRefused(options.Validate(), "path_mtu", "1500");
  options.limits.path_mtu = 8192;
  ExpectRefused(options.Validate(), "path_mtu", "8192");
  options.limits.path_mtu = 4096;
  EXPECT_TRUE(options.Validate().ok());
  options.path.traffic_class = 256;
  ExpectRefused(options.Validate(), "path.traffic_class", "256");
  options = ChannelOptions();
  options.spin = -absl::Nanoseconds(1);
  ExpectRefused(options.Validate(), "spin", "-1ns");
  options = ChannelOptions();
  options.connect_timeout = absl::InfiniteDuration();
  ExpectRefused(options.Validate(), "connect_timeout", "inf");
  options = ChannelOptions();
  options.max_outstanding_calls = 0;
  ExpectRefused(options.Validate(), "max_outstanding_calls", "0");
  options = ChannelOptions();
  options.backoff_max = options.backoff_min - absl::Nanoseconds(1);
  ExpectRefused(options.Validate(), "backoff_max", "19.999999ms");
  options = ChannelOptions();
  options.retry.max_attempts = 17;
  ExpectRefused(options.Validate(), "retry.max_attempts", "17");
  options = ChannelOptions();
  options.retry.pause_max = absl::Milliseconds(4);
  ExpectRefused(options.Validate(), "retry.pause_max", "4ms");
  options = ChannelOptions();
  options.retry.refill = 1.5;
  ExpectRefused(options.Validate(), "retry.refill", "1.5");
}

TEST(OptionsTest, LanesOutOfRange) {
  ChannelOptions options;
  options.limits.lanes = static_cast<Lanes>(3);
  ExpectRefused(options.Validate(), "lanes", "3");
  options = ChannelOptions();
  options.limits.lane_memory_bytes = (1u << 30) + 1;
  ExpectRefused(options.Validate(), "lane_memory_bytes", "1073741825");
  options.limits.lane_memory_bytes = 0;
  EXPECT_TRUE(options.Validate().ok());
  options.limits.lane_slots = 3;
  ExpectRefused(options.Validate(), "lane_slots", "3");
  options = ChannelOptions();
  options.limits.lane_slot_bytes = 200;
  ExpectRefused(options.Validate(), "lane_slot_bytes", "200");
  options.limits.lane_slot_bytes = 0;
  ExpectRefused(options.Validate(), "lane_slot_bytes", "0");
  options.limits.lane_slot_bytes = 4224;
  ExpectRefused(options.Validate(), "lane_slot_bytes", "4224");
  options = ChannelOptions();
  options.limits.lane_after_messages = 0;
  ExpectRefused(options.Validate(), "lane_after_messages", "0");
  ServerOptions server;
  server.limits.lane_slots = 4097;
  ExpectRefused(server.Validate(), "lane_slots", "4097");
  MessengerOptions messenger;
  messenger.limits.lane_slots = 4097;
  ExpectRefused(messenger.Validate(), "lane_slots", "4097");
}

TEST(OptionsTest, ServerValuesOutOfRange) {
  ServerOptions options;
  options.max_waiting_replies_per_peer = 0;
  ExpectRefused(options.Validate(), "max_waiting_replies_per_peer", "0");
  options = ServerOptions();
  options.max_waiting_bytes_per_peer = options.limits.max_message_bytes - 1;
  ExpectRefused(options.Validate(), "max_waiting_bytes_per_peer", "16383");
  options = ServerOptions();
  options.spin = absl::Seconds(2);
  ExpectRefused(options.Validate(), "spin", "2s");
}

TEST(OptionsTest, MessengerValuesOutOfRange) {
  MessengerOptions options;
  EXPECT_TRUE(options.Validate().ok());
  options.max_flows = (1u << 24) + 1;
  ExpectRefused(options.Validate(), "max_flows", "16777217");
  options = MessengerOptions();
  options.connect_timeout = absl::ZeroDuration();
  ExpectRefused(options.Validate(), "connect_timeout", "0");
  options = MessengerOptions();
  options.limits.credits_per_peer = 3;
  ExpectRefused(options.Validate(), "credits_per_peer", "3");
}

TEST(OptionsTest, SecretsComeFromOnePlace) {
  ServerOptions server;
  server.authentication.secret_file = "/etc/sluice/secrets";
  EXPECT_TRUE(server.Validate().ok());
  server.authentication.secret_source = [] { return std::vector<std::string>(); };
  ExpectRefused(server.Validate(), "authentication", "both");
  ChannelOptions channel;
  channel.authentication = server.authentication;
  ExpectRefused(channel.Validate(), "authentication", "both");
  channel.authentication.secret_file.clear();
  EXPECT_TRUE(channel.Validate().ok());
}

}  // namespace options_test
}  // namespace sluice
