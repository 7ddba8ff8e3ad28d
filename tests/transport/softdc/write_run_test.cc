// SPDX-License-Identifier: Apache-2.0
//
// What a run of WRITEs shares is judged once for each doorbell: keys that are taken back between two doorbells are
// refused, and a change of key, region or range inside of a run is noticed.
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/model/context.h"
#include "transport/softdc/model/memory_window.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace write_run_test {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
constexpr size_t kTo = DcNode::kSendAreaOffset + (256 << 10);  // in the target's slab
constexpr size_t kFrom = DcNode::kSendAreaOffset;
constexpr size_t kBytes = 16;  // of each WRITE
constexpr size_t kRegionBytes = 256;

class WriteRunTest : public ::testing::Test {
 protected:
  // Of 16 bytes; the letter is what they are.
  struct Piece {
    char letter = 'a';
    size_t to = kTo;
    uint32_t rkey = 0;  // 0: of the slab
    size_t from = kFrom;
    uint32_t lkey = 0;  // 0: of the slab
    uint16_t stream = 1;
    unsigned flags = IBV_SEND_SIGNALED;
    bool inlined = false;
    size_t bytes = kBytes;
    bool send = false;  // a SEND
  };

  WriteRunTest() {
    // The first request to a target waits for an answer about it, and what waited runs alone.
    EXPECT_EQ(a_.Send(b_.Address(), "hello", 0), 0);
    EXPECT_EQ(a_.PollSend().status, IBV_WC_SUCCESS);
  }
  static DcNodeOptions Bindable() {
    DcNodeOptions options;
    options.access |= IBV_ACCESS_MW_BIND;
    return options;
  }
  void Start() {
    ibv_wr_start(a_.dci_ex);
    next_ = 0;
  }
  void Write(const Piece& piece) {
    const DcAddress to = b_.Address();
    std::memset(a_.slab + piece.from, piece.letter, piece.bytes);
    a_.dci_ex->wr_id = next_++;
    a_.dci_ex->wr_flags = piece.flags;
    if (piece.send) {
      ibv_wr_send(a_.dci_ex);
    } else {
      ibv_wr_rdma_write(a_.dci_ex, piece.rkey != 0 ? piece.rkey : to.rkey,
                        to.slab_address + piece.to);
    }
    mlx5dv_wr_set_dc_addr_stream(a_.dci_dv, a_.ah, to.dctn, to.dc_key, piece.stream);
    if (piece.inlined) {
      ibv_wr_set_inline_data(a_.dci_ex, a_.slab + piece.from, piece.bytes);
    } else {
      ibv_wr_set_sge(a_.dci_ex, piece.lkey != 0 ? piece.lkey : a_.mr->lkey,
                     reinterpret_cast<uint64_t>(a_.slab + piece.from),
                     static_cast<uint32_t>(piece.bytes));
    }
  }
  void Ring() { ASSERT_EQ(ibv_wr_complete(a_.dci_ex), 0); }
  void ExpectDone(uint64_t wr_id, ibv_wc_status status) {
    const ibv_wc wc = a_.PollSend();
    EXPECT_EQ(wc.wr_id, wr_id);
    EXPECT_EQ(wc.status, status) << "request " << wr_id;
  }
  char LetterAt(size_t offset) { return static_cast<char>(b_.slab[offset]); }

  // Two streams, two places, one doorbell: both succeed, or both fail.
  void ExpectBoth(Piece piece, ibv_wc_status status) {
    Start();
    Write(piece);
    piece.to += kBytes;
    piece.from += kBytes;
    ++piece.stream;
    Write(piece);
    Ring();
    ExpectDone(0, status);
    ExpectDone(1, status);
  }

  DcNode a_{{.log_errored_streams = 4}};
  DcNode b_{Bindable()};
  uint64_t next_ = 0;
};

TEST_F(WriteRunTest, AKeyThatWasTakenBackBetweenTwoDoorbellsIsRefused) {
  ibv_mr* mr = RegMr(b_.pd, b_.slab + kTo, kRegionBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  ExpectBoth({.letter = 'a', .rkey = rkey}, IBV_WC_SUCCESS);
  ASSERT_EQ(DeregMr(mr), 0);
  ExpectBoth({.letter = 'b', .rkey = rkey, .stream = 3}, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(LetterAt(kTo), 'a');
  EXPECT_EQ(LetterAt(kTo + kBytes), 'a');
}

// On one stream: what stands before a request that fails is delivered, and what stands behind it is flushed.
TEST_F(WriteRunTest, ARequestThatFailsAtHomeStopsOnlyWhatStandsBehindIt) {
  for (const bool send : {false, true}) {
    const uint16_t stream = send ? 5 : 6;
    Start();
    Write({.stream = stream, .send = send});
    Write({.lkey = a_.mr->lkey + 1, .stream = stream, .send = send});
    Write({.stream = stream, .send = send});
    Ring();
    ExpectDone(0, IBV_WC_SUCCESS);
    ExpectDone(1, IBV_WC_LOC_PROT_ERR);
    ExpectDone(2, IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_F(WriteRunTest, RightsThatWereTakenBetweenTwoDoorbellsAreMissed) {
  ibv_mr* mr = RegMr(b_.pd, b_.slab + kTo, kRegionBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t rkey = mr->rkey;
  ExpectBoth({.letter = 'a', .rkey = rkey}, IBV_WC_SUCCESS);
  ASSERT_EQ(ReregMr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            0);
  ASSERT_EQ(mr->rkey, rkey);
  ExpectBoth({.letter = 'b', .rkey = rkey, .stream = 3}, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(LetterAt(kTo), 'a');
  EXPECT_EQ(DeregMr(mr), 0);
}

TEST_F(WriteRunTest, AWindowThatWasInvalidatedBetweenTwoDoorbellsIsRefused) {
  Context& context = *Context::From(b_.context);
  const uint32_t pd = Pd::From(b_.pd)->number;
  ibv_mw* window = AllocMw(b_.pd, IBV_MW_TYPE_2);
  ASSERT_NE(window, nullptr);
  const uint32_t key = ibv_inc_rkey(window->rkey);
  ASSERT_EQ(BindWindow(context, pd, /*qp_number=*/0, window->rkey, key,
                       {.mr = b_.mr,
                        .addr = reinterpret_cast<uint64_t>(b_.slab + kTo),
                        .length = kRegionBytes,
                        .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}),
            IBV_WC_SUCCESS);
  ExpectBoth({.letter = 'a', .rkey = key}, IBV_WC_SUCCESS);
  // Behind one that the region's own key has led in, and outside of the window.
  Start();
  Write({.letter = 'r'});
  Write({.letter = 'o', .to = kTo + kRegionBytes, .rkey = key, .from = kFrom + 64, .stream = 3});
  Ring();
  ExpectDone(0, IBV_WC_SUCCESS);
  ExpectDone(1, IBV_WC_REM_ACCESS_ERR);
  ASSERT_EQ(InvalidateWindow(context, pd, key), IBV_WC_SUCCESS);
  ExpectBoth({.letter = 'b', .rkey = key, .stream = 4}, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(LetterAt(kTo), 'r');
  EXPECT_EQ(LetterAt(kTo + kBytes), 'a');
  EXPECT_EQ(LetterAt(kTo + kRegionBytes), '\0');
  EXPECT_EQ(DeallocMw(window), 0);
}

TEST_F(WriteRunTest, EachOfTwoRegionsIsJudgedByItsOwnRange) {
  ibv_mr* mr = RegMr(b_.pd, b_.slab + kTo, kRegionBytes, kAccess);
  ASSERT_NE(mr, nullptr);
  const uint32_t small = mr->rkey;
  Start();
  Write({.letter = 'a', .to = kTo, .rkey = small});
  Write({.letter = 'b', .to = kTo + kRegionBytes, .from = kFrom + 16});
  Write({.letter = 'c', .to = kTo + kRegionBytes - kBytes, .rkey = small, .from = kFrom + 32});
  // Inside of the slab, and one byte outside of the small region.
  Write({.letter = 'd',
         .to = kTo + kRegionBytes - kBytes + 1,
         .rkey = small,
         .from = kFrom + 48,
         .stream = 2});
  Write({.letter = 'e', .to = kTo + kRegionBytes + kBytes, .from = kFrom + 64});
  Write({.letter = 'f', .to = kTo - 1, .rkey = small, .from = kFrom + 80, .stream = 3});
  Write({.letter = 'g', .to = kTo + kBytes, .rkey = small, .from = kFrom + 96});
  Ring();
  for (const uint64_t good : {0, 1, 2}) ExpectDone(good, IBV_WC_SUCCESS);
  ExpectDone(3, IBV_WC_REM_ACCESS_ERR);
  ExpectDone(4, IBV_WC_SUCCESS);
  ExpectDone(5, IBV_WC_REM_ACCESS_ERR);
  ExpectDone(6, IBV_WC_SUCCESS);
  EXPECT_EQ(LetterAt(kTo - 1), '\0');
  EXPECT_EQ(LetterAt(kTo), 'a');
  EXPECT_EQ(LetterAt(kTo + kBytes), 'g');
  EXPECT_EQ(LetterAt(kTo + kRegionBytes - 1), 'c');
  EXPECT_EQ(LetterAt(kTo + kRegionBytes), 'b');
  EXPECT_EQ(LetterAt(kTo + kRegionBytes + kBytes), 'e');
  EXPECT_EQ(DeregMr(mr), 0);
}

TEST_F(WriteRunTest, EachOfTwoLocalRegionsIsJudgedByItsOwnRange) {
  ibv_mr* mr = RegMr(a_.pd, a_.slab + kFrom, 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  Start();
  Write({.letter = 'a', .to = kTo, .from = kFrom, .lkey = mr->lkey});
  Write({.letter = 'b', .to = kTo + 16, .from = kFrom + 64});
  Write({.letter = 'c', .to = kTo + 32, .from = kFrom + 48, .lkey = mr->lkey});
  Write({.letter = 'd', .to = kTo + 48, .from = kFrom + 80, .lkey = mr->lkey, .stream = 2});
  Write({.letter = 'e', .to = kTo + 64, .from = kFrom + 96});
  Write({.letter = 'f', .to = kTo + 80, .from = kFrom + 16, .lkey = mr->lkey});
  Ring();
  for (const uint64_t good : {0, 1, 2}) ExpectDone(good, IBV_WC_SUCCESS);
  ExpectDone(3, IBV_WC_LOC_PROT_ERR);
  for (const uint64_t good : {4, 5}) ExpectDone(good, IBV_WC_SUCCESS);
  EXPECT_EQ(LetterAt(kTo), 'a');
  EXPECT_EQ(LetterAt(kTo + 16), 'b');
  EXPECT_EQ(LetterAt(kTo + 32), 'c');
  EXPECT_EQ(LetterAt(kTo + 48), '\0');
  EXPECT_EQ(LetterAt(kTo + 64), 'e');
  EXPECT_EQ(LetterAt(kTo + 80), 'f');
  // And gone at the next doorbell.
  const uint32_t lkey = mr->lkey;
  ASSERT_EQ(DeregMr(mr), 0);
  ExpectBoth({.from = kFrom, .lkey = lkey, .stream = 4}, IBV_WC_LOC_PROT_ERR);
}

TEST_F(WriteRunTest, SignalledUnsignalledInlinedAndFencedOnesKeepTheirOrder) {
  Start();
  for (uint64_t i = 0; i < 24; ++i) {
    const unsigned flags =
        (i % 3 == 2 ? unsigned{IBV_SEND_SIGNALED} : 0) | (i % 8 == 5 ? IBV_SEND_FENCE : 0);
    Write({.letter = static_cast<char>('a' + i),
           .to = kTo + i * 8,  // over half of the one before
           .from = kFrom + i * kBytes,
           .stream = static_cast<uint16_t>(i % 2),
           .flags = flags,
           .inlined = i % 4 == 1});
  }
  Ring();
  for (uint64_t i = 2; i < 24; i += 3) ExpectDone(i, IBV_WC_SUCCESS);
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(LetterAt(kTo + i * 8), static_cast<char>('a' + i));
}

TEST_F(WriteRunTest, OnesWithoutBytesAmongOthersSucceed) {
  constexpr uint32_t kBadKey = 0xffffff01;  // which is not looked at
  Start();
  Write({.letter = 'a'});
  Write({.to = kTo, .rkey = kBadKey, .inlined = true, .bytes = 0});
  Write({.letter = 'b', .to = kTo + 16, .from = kFrom + 16, .inlined = true});
  Write({.to = kTo, .rkey = kBadKey, .bytes = 0});
  Write({.letter = 'c', .to = kTo + 32, .from = kFrom + 32});
  Ring();
  for (uint64_t i = 0; i < 5; ++i) ExpectDone(i, IBV_WC_SUCCESS);
  EXPECT_EQ(LetterAt(kTo), 'a');
  EXPECT_EQ(LetterAt(kTo + 16), 'b');
  EXPECT_EQ(LetterAt(kTo + 32), 'c');
}

TEST_F(WriteRunTest, AFullQueueSaysSoAndHasRoomAgainOnceItIsPolled) {
  for (int round = 0; round < 3; ++round) {
    Start();
    for (int i = 0; i < 64; ++i) Write({.flags = i == 63 ? unsigned{IBV_SEND_SIGNALED} : 0});
    Ring();
    Start();
    Write({});
    EXPECT_EQ(ibv_wr_complete(a_.dci_ex), ENOMEM);
    ExpectDone(63, IBV_WC_SUCCESS);
  }
}

TEST_F(WriteRunTest, AWriteWithoutItsSettersFailsTheBatchButNotTheNext) {
  Start();
  ibv_wr_rdma_write(a_.dci_ex, b_.Address().rkey, b_.Address().slab_address + kTo);
  Write({});
  EXPECT_EQ(ibv_wr_complete(a_.dci_ex), EINVAL);
  Start();
  ibv_wr_rdma_write(a_.dci_ex, b_.Address().rkey, b_.Address().slab_address + kTo);
  ibv_wr_abort(a_.dci_ex);
  Start();
  Ring();
  ExpectBoth({.letter = 'z'}, IBV_WC_SUCCESS);
  EXPECT_EQ(LetterAt(kTo), 'z');
}

}  // namespace write_run_test
}  // namespace sluice::softdc
