// SPDX-License-Identifier: Apache-2.0
//
// The limit of a shared receive queue (man ibv_modify_srq), beyond the conformance suite. With another process:
// srq_limit_process_test.
#include <cerrno>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace srq_limit_test {

int Arm(const DcNode& node, uint32_t limit) {
  ibv_srq_attr attr{};
  attr.srq_limit = limit;
  return ModifySrq(node.srq, &attr, IBV_SRQ_LIMIT);
}

void ExpectEvent(const DcNode& node) {
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(node.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, node.srq);
  AckAsyncEvent(&event);
}

TEST(SrqLimit, ArmedAboveWhatIsPostedItComesAtOnce) {
  DcNode b({.receives = 4});
  ASSERT_EQ(Arm(b, 5), 0);
  ExpectEvent(b);
}

TEST(SrqLimit, UnknownBitOfTheMaskIsRefused) {
  DcNode b;
  ibv_srq_attr attr{};
  ASSERT_EQ(QuerySrq(b.srq, &attr), 0);
  EXPECT_EQ(ModifySrq(b.srq, &attr, 1 << 5), EINVAL);
}

}  // namespace srq_limit_test
}  // namespace sluice::softdc
