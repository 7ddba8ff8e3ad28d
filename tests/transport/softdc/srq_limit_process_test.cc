// SPDX-License-Identifier: Apache-2.0
//
// Another process takes the receive WQEs, or overruns the completion queue: the owner's firmware is
// told.
#include <unistd.h>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace srq_limit_process_test {

constexpr int kMessages = 64;

// Sends one message, and many more when told to.
void SendsOneThenMany(int down, int) {
  DcAddress to;
  DcNode a;
  if (read(down, &to, sizeof(to)) != sizeof(to)) return;
  a.Send(to, "one", 1);
  a.PollSend();
  if (read(down, &to, sizeof(to)) != sizeof(to)) return;
  for (int i = 0; i < kMessages; ++i) {
    a.Send(to, "many", 2);
    a.PollSend();
  }
}

TEST(OwnerIsTold, OfALimitReachedAndOfAnOverrun) {
  Child child(&SendsOneThenMany);
  DcNode b({.receives = kMessages + 1, .cqe = 4});
  ibv_srq_attr attr{};
  attr.srq_limit = kMessages + 1;
  ASSERT_EQ(ModifySrq(b.srq, &attr, IBV_SRQ_LIMIT), 0);
  child.Put(b.Address());
  ibv_async_event event{};
  ASSERT_EQ(GetAsyncEvent(b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, b.srq);
  AckAsyncEvent(&event);

  child.Put(b.Address());
  ASSERT_EQ(GetAsyncEvent(b.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, b.receive_cq);
  AckAsyncEvent(&event);
}

}  // namespace srq_limit_process_test
}  // namespace sluice::softdc
