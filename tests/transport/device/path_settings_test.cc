// SPDX-License-Identifier: Apache-2.0
#include "transport/device/path_settings.h"

#include <string>

#include "gtest/gtest.h"

namespace sluice::device {
namespace path_settings_test {

void ExpectRefused(const PathSettings& settings, const std::string& message) {
  const absl::Status status = settings.Validate();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(std::string(status.message()), message);
}

TEST(PathSettings, ValidateNamesOptionValueAndRange) {
  EXPECT_TRUE(PathSettings().Validate().ok());
  EXPECT_TRUE(PathSettings({.gid_index = 254,
                            .traffic_class = 255,
                            .service_level = 15,
                            .pkey = 0xffff,
                            .ack_timeout = 31,
                            .retry_count = 0,
                            .rnr_retry = 0,
                            .flow_labels = 64})
                  .Validate()
                  .ok());
  ExpectRefused({.gid_index = 255},
                "option path.gid_index is 255: allowed is 0 to 254; change the value");
  ExpectRefused({.traffic_class = 256},
                "option path.traffic_class is 256: allowed is 0 to 255; change the value");
  ExpectRefused({.service_level = 16},
                "option path.service_level is 16: allowed is 0 to 15; change the value");
  ExpectRefused({.pkey = 0}, "option path.pkey is 0: allowed is 1 to 65535; change the value");
  ExpectRefused({.ack_timeout = 0},
                "option path.ack_timeout is 0: allowed is 1 to 31; change the value");
  ExpectRefused({.retry_count = 8},
                "option path.retry_count is 8: allowed is 0 to 7; change the value");
  ExpectRefused({.rnr_retry = 7},
                "option path.rnr_retry is 7: allowed is 0 to 6; change the value");
  ExpectRefused({.flow_labels = 0},
                "option path.flow_labels is 0: allowed is 1 to 64; change the value");
}

}  // namespace path_settings_test
}  // namespace sluice::device
