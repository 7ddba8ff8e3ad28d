// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/dial_file.h"

#include <gtest/gtest.h>

#include "transport/softdc/config/config.h"

namespace sluice::hardware {
namespace dial_file_test {

TEST(DialFileTest, IsTextThatSoftdcTakes) {
  DialFile file;
  EXPECT_EQ(file.Text("\n"), "");
  file.Set({"streams", "max_log_errored", "0"});
  file.Set({"streams", "cqe_order", "PER_STREAM"});
  file.Set({"retries", "timeout_factor", "4"});
  EXPECT_EQ(file.Text("\n"),
            "retries { timeout_factor: 4 }\nstreams { cqe_order: PER_STREAM max_log_errored: 0 }");
  const auto dials = softdc::ParseDials(file.Text("\n"));
  ASSERT_TRUE(dials.ok()) << dials.status();
  EXPECT_EQ(dials->retries.timeout_factor, 4);
  EXPECT_EQ(dials->streams.max_log_errored, 0);
}

// Three probes set it: what was seen torn counts more than what was promised.
TEST(DialFileTest, KeepsTheWeakerOrder) {
  DialFile file;
  file.Set({"features", "in_order", "BLOCKS_128"});
  file.Set({"features", "in_order", "NONE"});
  file.Set({"features", "in_order", "BLOCKS_128"});
  EXPECT_EQ(file.Text(" "), "features { in_order: NONE }");
}

}  // namespace dial_file_test
}  // namespace sluice::hardware
