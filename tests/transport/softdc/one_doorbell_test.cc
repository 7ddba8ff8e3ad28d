// SPDX-License-Identifier: Apache-2.0
//
// WRITEs behind one doorbell: those to one target run in one go, and each is judged, lands, completes and fails as if it
// were alone.
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace one_doorbell_test {

constexpr uint32_t kBadKey = 0xffffff01;
constexpr size_t kTo = DcNode::kSendAreaOffset + (256 << 10);  // in the target's slab
constexpr size_t kFrom = DcNode::kSendAreaOffset;

// Adds WRITEs to a doorbell that is open.
class Doorbell {
 public:
  Doorbell(DcNode& from, const DcAddress& to) : from_(from), to_(to) { ibv_wr_start(from_.dci_ex); }

  struct Where {
    size_t offset = kTo;
    uint32_t rkey = 0;  // 0: the right one
    uint16_t stream = 0;
  };
  void Write(uint64_t wr_id, const std::string& text, const Where& where) {
    std::memcpy(from_.slab + staged_, text.data(), text.size());
    Begin(wr_id);
    ibv_wr_rdma_write(from_.dci_ex, where.rkey != 0 ? where.rkey : to_.rkey,
                      to_.slab_address + where.offset);
    End(text.size(), where.stream);
  }
  void Read(uint64_t wr_id, size_t offset, size_t bytes) {
    Begin(wr_id);
    ibv_wr_rdma_read(from_.dci_ex, to_.rkey, to_.slab_address + offset);
    End(bytes, 0);
  }
  int Ring() { return ibv_wr_complete(from_.dci_ex); }
  size_t staged() const { return staged_; }

 private:
  void Begin(uint64_t wr_id) {
    from_.dci_ex->wr_id = wr_id;
    from_.dci_ex->wr_flags = IBV_SEND_SIGNALED;
  }
  void End(size_t bytes, uint16_t stream) {
    mlx5dv_wr_set_dc_addr_stream(from_.dci_dv, from_.ah, to_.dctn, to_.dc_key, stream);
    ibv_wr_set_sge(from_.dci_ex, from_.mr->lkey, reinterpret_cast<uint64_t>(from_.slab + staged_),
                   static_cast<uint32_t>(bytes));
    staged_ += bytes;
  }

  DcNode& from_;
  const DcAddress to_;
  size_t staged_ = kFrom;
};

std::string At(const DcNode& node, size_t offset, size_t bytes) {
  return {reinterpret_cast<const char*>(node.slab + offset), bytes};
}

void ExpectSent(DcNode& node, uint64_t wr_id, ibv_wc_status status) {
  const ibv_wc wc = node.PollSend();
  EXPECT_EQ(wc.wr_id, wr_id);
  EXPECT_EQ(wc.status, status) << "request " << wr_id;
}

// The first request to a target waits for an answer about it, and what waited runs alone.
void Meet(DcNode& a, const DcAddress& to) {
  ASSERT_EQ(a.Send(to, "hello", 0), 0);
  ExpectSent(a, 0, IBV_WC_SUCCESS);
}

TEST(OneDoorbell, WritesLandEachAtItsPlaceAndCompleteInOrder) {
  DcNode a({.send_wr = 128}), b;
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  for (uint64_t i = 0; i < 100; ++i) {
    bell.Write(i, "write " + std::to_string(i),
               {.offset = kTo + i * 64, .stream = static_cast<uint16_t>(i % 3)});
  }
  ASSERT_EQ(bell.Ring(), 0);
  for (uint64_t i = 0; i < 100; ++i) {
    ExpectSent(a, i, IBV_WC_SUCCESS);
    const std::string text = "write " + std::to_string(i);
    EXPECT_EQ(At(b, kTo + i * 64, text.size()), text);
  }
}

TEST(OneDoorbell, LaterWritesToThePlaceOfEarlierOnesLandLater) {
  DcNode a, b;
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  for (uint64_t i = 0; i < 20; ++i) bell.Write(i, std::string(40, static_cast<char>('a' + i)), {});
  ASSERT_EQ(bell.Ring(), 0);
  for (uint64_t i = 0; i < 20; ++i) ExpectSent(a, i, IBV_WC_SUCCESS);
  EXPECT_EQ(At(b, kTo, 40), std::string(40, 't'));
}

TEST(OneDoorbell, ABadKeyFailsItsWriteAndFlushesNoStreamButItsOwn) {
  DcNode a, b;
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  bell.Write(1, "before", {.offset = kTo, .stream = 1});
  bell.Write(2, "nowhere", {.offset = kTo + 64, .rkey = kBadKey, .stream = 1});
  bell.Write(3, "behind", {.offset = kTo + 128, .stream = 1});
  bell.Write(4, "beside", {.offset = kTo + 192, .stream = 2});
  ASSERT_EQ(bell.Ring(), 0);
  ExpectSent(a, 1, IBV_WC_SUCCESS);
  ExpectSent(a, 2, IBV_WC_REM_ACCESS_ERR);
  ExpectSent(a, 3, IBV_WC_WR_FLUSH_ERR);
  ExpectSent(a, 4, IBV_WC_SUCCESS);
  EXPECT_EQ(At(b, kTo, 6), "before");
  EXPECT_EQ(At(b, kTo + 128, 6), std::string(6, '\0'));
  EXPECT_EQ(At(b, kTo + 192, 6), "beside");
}

TEST(OneDoorbell, AnErrorWithoutStreamsFlushesAllThatFollow) {
  DcNode a({.streams = false}), b;
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  bell.Write(1, "nowhere", {.offset = kTo, .rkey = kBadKey});
  bell.Write(2, "behind", {.offset = kTo + 64});
  ASSERT_EQ(bell.Ring(), 0);
  ExpectSent(a, 1, IBV_WC_REM_ACCESS_ERR);
  ExpectSent(a, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(At(b, kTo + 64, 6), std::string(6, '\0'));
}

TEST(OneDoorbell, EachRangeIsJudgedThoughTheKeyIsTheSame) {
  DcNode a, b;
  Meet(a, b.Address());
  const struct {
    const char* what;
    size_t offset;
  } outside[] = {{"across its end", DcNode::kSlabBytes - 4},
                 {"behind it", DcNode::kSlabBytes + 64},
                 {"before it", static_cast<size_t>(-8)}};
  for (const auto& one : outside) {
    SCOPED_TRACE(one.what);
    Doorbell bell(a, b.Address());
    bell.Write(1, "good one", {.offset = DcNode::kSlabBytes - 8, .stream = 1});
    bell.Write(2, "bad one.", {.offset = one.offset, .stream = 2});
    ASSERT_EQ(bell.Ring(), 0);
    ExpectSent(a, 1, IBV_WC_SUCCESS);
    ExpectSent(a, 2, IBV_WC_REM_ACCESS_ERR);
    ASSERT_EQ(DvDciStreamIdReset(a.dci, 2), 0);
    EXPECT_EQ(At(b, DcNode::kSlabBytes - 8, 8), "good one");
  }
}

TEST(OneDoorbell, AWriteWithoutBytesLendsNobodyItsFreedom) {
  DcNode a, b({.dct_access = IBV_ACCESS_REMOTE_READ});
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  bell.Write(1, "", {.stream = 1});
  bell.Write(2, "no right", {.stream = 2});
  ASSERT_EQ(bell.Ring(), 0);
  ExpectSent(a, 1, IBV_WC_SUCCESS);
  ExpectSent(a, 2, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(At(b, kTo, 8), std::string(8, '\0'));
}

TEST(OneDoorbell, LongWritesAndReadsAmongShortOnesKeepTheirTurn) {
  DcNode a, b;
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  bell.Write(1, "first", {});
  const size_t read_first = bell.staged();
  bell.Read(2, kTo, 5);
  bell.Write(3, std::string(60'000, 'x'), {});
  bell.Write(4, "third", {});
  const size_t read_third = bell.staged();
  bell.Read(5, kTo, 6);
  bell.Write(6, "fifth", {});
  ASSERT_EQ(bell.Ring(), 0);
  for (uint64_t i = 1; i <= 6; ++i) ExpectSent(a, i, IBV_WC_SUCCESS);
  EXPECT_EQ(At(a, read_first, 5), "first");
  EXPECT_EQ(At(a, read_third, 6), "thirdx");
  EXPECT_EQ(At(b, kTo, 6), "fifthx");
  EXPECT_EQ(At(b, kTo + 59'999, 2), std::string("x\0", 2));
}

TEST(OneDoorbell, WritesToDifferentTargetsGoEachToItsOwn) {
  DcNode a, b, c;
  Meet(a, b.Address());
  Meet(a, c.Address());
  ibv_wr_start(a.dci_ex);
  for (uint64_t i = 0; i < 8; ++i) {
    const DcAddress to = i % 2 == 0 ? b.Address() : c.Address();
    std::memset(a.slab + kFrom + i * 8, static_cast<int>('0' + i), 8);
    a.dci_ex->wr_id = i;
    a.dci_ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(a.dci_ex, to.rkey, to.slab_address + kTo + i * 8);
    mlx5dv_wr_set_dc_addr_stream(a.dci_dv, a.ah, to.dctn, to.dc_key, 1);
    ibv_wr_set_sge(a.dci_ex, a.mr->lkey, reinterpret_cast<uint64_t>(a.slab + kFrom + i * 8), 8);
  }
  ASSERT_EQ(ibv_wr_complete(a.dci_ex), 0);
  for (uint64_t i = 0; i < 8; ++i) {
    ExpectSent(a, i, IBV_WC_SUCCESS);
    const DcNode& there = i % 2 == 0 ? b : c;
    const DcNode& not_there = i % 2 == 0 ? c : b;
    EXPECT_EQ(At(there, kTo + i * 8, 8), std::string(8, static_cast<char>('0' + i)));
    EXPECT_EQ(At(not_there, kTo + i * 8, 8), std::string(8, '\0'));
  }
}

TEST(OneDoorbell, WritesToAWrongKeyOfTheTargetAreNotLedInByTheRightOne) {
  DcNode a({.timeout = 1}), b;
  Meet(a, b.Address());
  const DcAddress to = b.Address();
  ibv_wr_start(a.dci_ex);
  for (uint64_t i = 0; i < 2; ++i) {
    a.dci_ex->wr_id = i;
    a.dci_ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(a.dci_ex, to.rkey, to.slab_address + kTo + i * 8);
    mlx5dv_wr_set_dc_addr_stream(a.dci_dv, a.ah, to.dctn, to.dc_key + i, static_cast<uint16_t>(i));
    std::memset(a.slab + kFrom, 'k', 8);
    ibv_wr_set_sge(a.dci_ex, a.mr->lkey, reinterpret_cast<uint64_t>(a.slab + kFrom), 8);
  }
  ASSERT_EQ(ibv_wr_complete(a.dci_ex), 0);
  ExpectSent(a, 0, IBV_WC_SUCCESS);
  EXPECT_NE(a.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(At(b, kTo, 8), "kkkkkkkk");
  EXPECT_EQ(At(b, kTo + 8, 8), std::string(8, '\0'));
}

TEST(OneDoorbell, PrivateMemoryIsWrittenAsWell) {
  DcNode a, b({.private_memory = true});
  Meet(a, b.Address());
  Doorbell bell(a, b.Address());
  for (uint64_t i = 0; i < 8; ++i) bell.Write(i, "private", {.offset = kTo + i * 8});
  ASSERT_EQ(bell.Ring(), 0);
  for (uint64_t i = 0; i < 8; ++i) {
    ExpectSent(a, i, IBV_WC_SUCCESS);
    EXPECT_EQ(At(b, kTo + i * 8, 7), "private");
  }
}

}  // namespace one_doorbell_test
}  // namespace sluice::softdc
