// SPDX-License-Identifier: Apache-2.0
//
// Memory windows: what a bind allows, whose key works, and when. The work requests that bind and
// invalidate are the queue pairs' (their tests post them); here it is what they do.

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace mr_window_test {

constexpr size_t kAt = DcNode::kSendAreaOffset;

class MrWindowTest : public ::testing::Test {
 protected:
  static DcNodeOptions Bindable() {
    DcNodeOptions options;
    options.access |= IBV_ACCESS_MW_BIND;
    return options;
  }
  MrWindowTest() : b_(Bindable()), window_(AllocMw(b_.pd, IBV_MW_TYPE_2)) {}
  ~MrWindowTest() override { EXPECT_EQ(DeallocMw(window_), 0); }

  Context& context() { return *Context::From(b_.context); }
  uint32_t pd() { return Pd::From(b_.pd)->number; }
  ibv_mw_bind_info Info(unsigned access = IBV_ACCESS_REMOTE_WRITE) {
    return {.mr = b_.mr,
            .addr = reinterpret_cast<uint64_t>(b_.slab + kAt),
            .length = 64,
            .mw_access_flags = access};
  }
  // As a DCI does: the key works through any of the PD's targets.
  ibv_wc_status Bind(uint32_t key, const ibv_mw_bind_info& info, uint32_t qp_number = 0) {
    return BindWindow(context(), pd(), qp_number, window_->rkey, key, info);
  }
  ibv_wc_status WriteWith(uint32_t key, size_t offset) {
    EXPECT_EQ(a_.Write(b_.Address(), offset, "window", 1, /*stream=*/next_stream_++, key), 0);
    return a_.PollSend().status;
  }

  DcNode a_{{.log_errored_streams = 4}};
  DcNode b_;
  ibv_mw* window_;
  uint16_t next_stream_ = 1;
};

TEST_F(MrWindowTest, KeyWorksOnlyWhileBoundAndOnlyInside) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(Bind(key, Info()), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(b_.slab + kAt, "window", 6), 0);
  EXPECT_EQ(WriteWith(key, kAt + 60), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(WriteWith(key, kAt - 1), IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(InvalidateWindow(context(), pd(), key), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MrWindowTest, BindsThatAreRefused) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  ibv_mw_bind_info info = Info();
  info.addr = reinterpret_cast<uint64_t>(b_.slab) + DcNode::kSlabBytes - 8;
  EXPECT_EQ(Bind(key, info), IBV_WC_MW_BIND_ERR);
  info = Info(IBV_ACCESS_ZERO_BASED);
  EXPECT_EQ(Bind(key, info), IBV_WC_MW_BIND_ERR);
  info = Info();
  info.mr = a_.mr;  // without IBV_ACCESS_MW_BIND, and not of this context
  EXPECT_EQ(Bind(key, info), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(BindWindow(context(), pd() + 1, 0, window_->rkey, key, Info()), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(BindWindow(context(), pd() + 1, 0, window_->rkey, key, {}), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(BindWindow(context(), pd(), 0, b_.mr->rkey, b_.mr->rkey + 1, Info()),
            IBV_WC_MW_BIND_ERR);
  ASSERT_EQ(Bind(key, Info()), IBV_WC_SUCCESS);
  EXPECT_EQ(Bind(ibv_inc_rkey(key), Info()), IBV_WC_MW_BIND_ERR);  // bound already
}

TEST_F(MrWindowTest, LocalWriteAmongItsRightsGrantsNothing) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  ASSERT_EQ(Bind(key, Info(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE)), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_REM_ACCESS_ERR);
}

TEST_F(MrWindowTest, BindOfNothingEndsTheBinding) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  const ibv_mw_bind_info nothing{};
  EXPECT_EQ(Bind(key, nothing), IBV_WC_SUCCESS);  // was not bound
  ASSERT_EQ(Bind(key, Info()), IBV_WC_SUCCESS);
  ASSERT_EQ(Bind(key, nothing), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_REM_ACCESS_ERR);
  EXPECT_FALSE(HasBoundWindow(context(), b_.mr->handle));
  ASSERT_EQ(Bind(key, Info()), IBV_WC_SUCCESS);
  EXPECT_EQ(WriteWith(key, kAt), IBV_WC_SUCCESS);
}

TEST_F(MrWindowTest, InvalidationOfWhatIsNotBoundFails) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  EXPECT_EQ(InvalidateWindow(context(), pd(), key), IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(InvalidateWindow(context(), pd(), b_.mr->rkey), IBV_WC_MW_BIND_ERR);
  const std::span regions(context().memory_regions(), shm::kMaxMemoryRegions);
  EXPECT_FALSE(InvalidateArriving(regions, b_.mr->rkey, pd(), 7));
  ASSERT_EQ(Bind(key, Info(), /*qp_number=*/7), IBV_WC_SUCCESS);
  EXPECT_FALSE(InvalidateArriving(regions, key, pd(), 8));
  EXPECT_FALSE(InvalidateArriving(regions, key, pd() + 1, 7));
  EXPECT_TRUE(InvalidateArriving(regions, key, pd(), 7));
  EXPECT_FALSE(InvalidateArriving(regions, key, pd(), 7));
}

TEST_F(MrWindowTest, NoKeyOfAWindowIsTheNextAllocationsOfItsPlace) {
  ibv_mw* window = AllocMw(b_.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  const uint32_t place = window->handle;
  std::set<uint32_t> revoked = {window->rkey};
  // As ibv_inc_rkey counts, and as a program may choose.
  for (const uint32_t key : {ibv_inc_rkey(window->rkey), ibv_inc_rkey(ibv_inc_rkey(window->rkey)),
                             place << 8 | 0xfe, place << 8 | 0x4}) {
    ASSERT_EQ(BindWindow(context(), pd(), 0, window->rkey, key, Info()), IBV_WC_SUCCESS);
    ASSERT_EQ(InvalidateWindow(context(), pd(), key), IBV_WC_SUCCESS);
    revoked.insert(key);
  }
  ASSERT_EQ(DeallocMw(window), 0);
  for (bool again = false; !again;) {
    window = AllocMw(b_.pd, IBV_MW_TYPE_2);
    ASSERT_NE(window, nullptr);
    again = window->handle == place;
    EXPECT_FALSE(revoked.contains(window->rkey)) << "a revoked key lives again";
    ASSERT_EQ(DeallocMw(window), 0);
  }
}

TEST_F(MrWindowTest, PlacesAreUsedAgainOldestFirstAndNotAtOnce) {
  ibv_mw* first = AllocMw(b_.pd, IBV_MW_TYPE_2);
  ibv_mw* second = AllocMw(b_.pd, IBV_MW_TYPE_2);
  const std::array<uint32_t, 2> freed = {first->handle, second->handle};
  ASSERT_EQ(DeallocMw(first), 0);
  ASSERT_EQ(DeallocMw(second), 0);
  uint32_t others = 0, found = 0;
  while (found < freed.size()) {
    ibv_mw* window = AllocMw(b_.pd, IBV_MW_TYPE_2);
    ASSERT_NE(window, nullptr);
    if (window->handle == freed[found]) {
      ++found;
    } else {
      ++others;
      ASSERT_TRUE(found == 1 || window->handle != freed[1]) << "the newer one came first";
    }
    ASSERT_EQ(DeallocMw(window), 0);
    ASSERT_LT(others, shm::kMaxMemoryRegions);
  }
  EXPECT_GE(others, kRestingRegions - freed.size());
}

TEST_F(MrWindowTest, ARegionWithABoundWindowIsBusy) {
  const uint32_t key = ibv_inc_rkey(window_->rkey);
  ASSERT_EQ(Bind(key, Info()), IBV_WC_SUCCESS);
  EXPECT_EQ(DeregMr(b_.mr), EBUSY);
  errno = 0;
  EXPECT_EQ(ReregMr(b_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_CMD);
  EXPECT_EQ(errno, EBUSY);
  ASSERT_EQ(InvalidateWindow(context(), pd(), key), IBV_WC_SUCCESS);
}

}  // namespace mr_window_test
}  // namespace sluice::softdc
