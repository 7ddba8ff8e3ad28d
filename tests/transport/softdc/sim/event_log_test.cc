// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/event_log.h"

#include <gtest/gtest.h>

namespace sluice::softdc::sim {
namespace event_log_test {

void Fill(EventLog* log, uint64_t place) {
  log->Add(1000, LogKind::kTransmit, 3, 256, place, 64);
  log->Add(2000, LogKind::kKill, 1);
}

TEST(EventLogTest, TextHasOneLineARecordWithTheFieldsOfItsKind) {
  EventLog log(LogMode::kText);
  Fill(&log, 7);
  EXPECT_EQ(log.Text(), "1000 n3 transmit qp=256 place=7 bytes=64\n2000 n1 kill\n");
  EXPECT_EQ(log.count(), 2u);
}

TEST(EventLogTest, DigestIsThatOfTheRecordsWhetherOrNotTheyAreKept) {
  EventLog kept(LogMode::kText), counted(LogMode::kDigest), other(LogMode::kDigest);
  Fill(&kept, 7);
  Fill(&counted, 7);
  Fill(&other, 8);
  EXPECT_EQ(kept.digest(), counted.digest());
  EXPECT_NE(kept.digest(), other.digest());
  EXPECT_EQ(counted.Text(), "");
}

TEST(EventLogTest, OffKeepsNothing) {
  EventLog log(LogMode::kOff);
  Fill(&log, 7);
  EXPECT_EQ(log.count(), 0u);
  EXPECT_EQ(log.digest(), 0u);
}

}  // namespace event_log_test
}  // namespace sluice::softdc::sim
