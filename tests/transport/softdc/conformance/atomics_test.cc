// SPDX-License-Identifier: Apache-2.0
//
// Atomics of RC queue pairs and of DCIs.
#include <string>

#include "tests/transport/softdc/conformance/conformance_test.h"
#include "tests/transport/softdc/conformance/plain_node.h"

namespace sluice::conformance {
namespace {

constexpr size_t kWord = PlainNode::kFreeOffset;         // at the target
constexpr size_t kBefore = PlainNode::kFreeOffset + 64;  // at the requester: what was there
constexpr int kMrRights = IBV_ACCESS_LOCAL_WRITE | kRemoteRights | IBV_ACCESS_REMOTE_ATOMIC;

class Atomics : public ConformanceTest {
 protected:
  static int FetchAdd(PlainPair& pair, uint64_t add, size_t offset = kWord, uint32_t length = 8) {
    ibv_send_wr wr = pair.a.WrTo(pair.b, offset, IBV_WR_ATOMIC_FETCH_AND_ADD, kBefore, length);
    wr.wr.atomic.compare_add = add;
    return pair.a.Post(wr);
  }
  static int CompareSwap(PlainPair& pair, uint64_t compare, uint64_t swap) {
    ibv_send_wr wr = pair.a.WrTo(pair.b, kWord, IBV_WR_ATOMIC_CMP_AND_SWP, kBefore, 8);
    wr.wr.atomic.compare_add = compare;
    wr.wr.atomic.swap = swap;
    return pair.a.Post(wr);
  }
};
ON_EVERY_DEVICE(Atomics);

TEST_P(Atomics, FetchAndAddReturnsWhatWasThere) {
  PROVES(91);
  PlainPair pair(bed());
  pair.b.Word(kWord) = 40;
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(FetchAdd(pair, 2), 0);
    const ibv_wc wc = pair.a.AwaitSend();
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
    EXPECT_EQ(wc.byte_len, 8u);
    EXPECT_EQ(pair.a.Word(kBefore), 40u + 2 * i);
  }
  EXPECT_EQ(pair.b.Word(kWord), 50u);
}

TEST_P(Atomics, CompareAndSwapSwapsOnlyWhatItExpected) {
  PROVES(91);
  PlainPair pair(bed());
  pair.b.Word(kWord) = 7;
  ASSERT_EQ(CompareSwap(pair, 8, 9), 0);
  EXPECT_EQ(pair.a.AwaitSend().opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(pair.a.Word(kBefore), 7u);
  EXPECT_EQ(pair.b.Word(kWord), 7u);
  ASSERT_EQ(CompareSwap(pair, 7, 9), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.a.Word(kBefore), 7u);
  EXPECT_EQ(pair.b.Word(kWord), 9u);
}

TEST_P(Atomics, MisalignedAddressIsAnInvalidRequest) {
  PROVES(91);
  PlainPair pair(bed());
  ASSERT_EQ(FetchAdd(pair, 1, kWord + 4), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_P(Atomics, OtherLengthThanEightIsALocalError) {
  PROVES(91);
  PlainPair pair(bed());
  ASSERT_EQ(FetchAdd(pair, 1, kWord, 4), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_LOC_LEN_ERR);
}

TEST_P(Atomics, RightMissingAtTheRegionOrTheQueuePairIsDenied) {
  PROVES(91);
  constexpr unsigned kNoAtomic = kAllRights & ~unsigned{IBV_ACCESS_REMOTE_ATOMIC};
  PlainPair region(bed(), {}, {.mr_access = kNoAtomic});
  ASSERT_EQ(FetchAdd(region, 1), 0);
  EXPECT_EQ(region.a.AwaitSend().status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(region.b.Word(kWord), 0u);
  PlainPair queue(bed(), {}, {.access = kNoAtomic});
  ASSERT_EQ(FetchAdd(queue, 1), 0);
  EXPECT_EQ(queue.a.AwaitSend().status, IBV_WC_REM_INV_REQ_ERR);
}

TEST_P(Atomics, ResultNeedsALocallyWritableRegion) {
  PROVES(57);
  PlainPair pair(bed(), {.mr_access = 0}, {});
  ASSERT_EQ(FetchAdd(pair, 1), 0);
  EXPECT_EQ(pair.a.AwaitSend().status, IBV_WC_LOC_PROT_ERR);
}

TEST_P(Atomics, WorkOnADciAsOnRc) {
  PROVES(49, 91);
  Node sender(bed());
  Node target(bed(), OnHost(1, {.mr_access = kMrRights,
                                .dct_access = kRemoteRights | IBV_ACCESS_REMOTE_ATOMIC}));
  const Address to = target.address();
  auto& word = *reinterpret_cast<uint64_t*>(target.slab + Node::kFreeOffset);
  auto& before = *reinterpret_cast<uint64_t*>(sender.slab + Node::kFreeOffset);
  word = 5;
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                             .local_offset = Node::kFreeOffset,
                             .remote_offset = Node::kFreeOffset,
                             .compare_add = 10}),
            0);
  ibv_wc wc = sender.AwaitSend();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_EQ(wc.opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(before, 5u);
  EXPECT_EQ(word, 15u);
  ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
                             .local_offset = Node::kFreeOffset,
                             .remote_offset = Node::kFreeOffset,
                             .compare_add = 15,
                             .swap = 3}),
            0);
  wc = sender.AwaitSend();
  EXPECT_EQ(wc.opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(wc.byte_len, 8u);
  EXPECT_EQ(before, 15u);
  EXPECT_EQ(word, 3u);
  EXPECT_TRUE(target.NoCompletion(target.receive_cq));
}

TEST_P(Atomics, DctMustGiveTheRight) {
  PROVES(39, 91);
  Node sender(bed());
  Node target(bed(), OnHost(1, {.mr_access = kMrRights}));
  ASSERT_EQ(sender.Post(target.address(), {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
                                           .local_offset = Node::kFreeOffset,
                                           .remote_offset = Node::kFreeOffset,
                                           .compare_add = 10}),
            0);
  EXPECT_EQ(sender.AwaitSend().status, Node::WithoutRight(bed()));
}

TEST_P(Atomics, DeviceWithoutThemSaysSo) {
  PROVES(29);
  TURN_DIALS("features { atomics: false }");
  Node node(bed());
  ibv_device_attr attr{};
  ASSERT_EQ(api().query_device(node.context, &attr), 0);
  EXPECT_EQ(attr.atomic_cap, IBV_ATOMIC_NONE);
  Node::Creation creation = node.DciCreation();
  creation.attr.send_ops_flags |= IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  EXPECT_EQ(node.Create(creation), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
}  // namespace sluice::conformance
