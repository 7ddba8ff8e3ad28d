// SPDX-License-Identifier: Apache-2.0
#include "transport/base/record_table.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice::base {
namespace record_table_test {

TEST(RecordTable, RecordsStayWhereTheyAreWhileItGrows) {
  RecordTable<size_t> table;
  std::vector<size_t*> places;
  for (size_t i = 0; i < 10 * RecordTable<size_t>::kBlock + 1; ++i) {
    size_t& record = table.Add();
    EXPECT_EQ(record, 0u);
    record = i;
    places.push_back(&record);
  }
  ASSERT_EQ(table.size(), places.size());
  for (size_t i = 0; i < places.size(); ++i) {
    EXPECT_EQ(&table[i], places[i]);
    EXPECT_EQ(table[i], i);
  }
}

}  // namespace record_table_test
}  // namespace sluice::base
