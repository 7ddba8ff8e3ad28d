// SPDX-License-Identifier: Apache-2.0
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/plain_node.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace atomic_test {

constexpr size_t kWord = PlainNode::kSendArea;         // at the target
constexpr size_t kBefore = PlainNode::kSendArea + 64;  // at the requester: what was there

uint64_t& WordAt(PlainNode& node, size_t offset) {
  return *reinterpret_cast<uint64_t*>(node.slab + offset);
}

ibv_send_wr Atomic(PlainPair& pair, ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap = 0) {
  ibv_send_wr wr = pair.a.Wr(opcode, kBefore, 8);
  wr.wr.atomic = {.remote_addr = pair.b.Address(kWord),
                  .compare_add = compare_add,
                  .swap = swap,
                  .rkey = pair.b.mr->rkey};
  return wr;
}

TEST(Atomic, AddsOfTheQueuePairAndOfTheCpuAllCount) {
  constexpr uint64_t kEach = 1000;
  PlainPair pair;
  WordAt(pair.b, kWord) = 0;
  std::thread cpu([&] {
    std::atomic_ref word(WordAt(pair.b, kWord));
    for (uint64_t i = 0; i < kEach; ++i) word.fetch_add(1);
  });
  for (uint64_t i = 0; i < kEach; ++i) {
    EXPECT_EQ(pair.a.Post(Atomic(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 1)), 0);
    EXPECT_EQ(pair.a.PollSend().status, IBV_WC_SUCCESS);
  }
  cpu.join();
  EXPECT_EQ(WordAt(pair.b, kWord), 2 * kEach);
}

// Less than a page of the heap stays the program's own.
class UnmappedWord {
 public:
  explicit UnmappedWord(PlainPair& pair)
      : pair_(pair),
        words_(kWords),
        mr_(RegMr(pair.b.pd, words_.data(), kWords * sizeof(uint64_t),
                  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) {}
  ~UnmappedWord() { EXPECT_EQ(DeregMr(mr_), 0); }

  uint64_t& operator*() { return words_[1]; }
  ibv_wc Run(ibv_wr_opcode opcode, uint64_t compare_add, uint64_t swap = 0) {
    ibv_send_wr wr = Atomic(pair_, opcode, compare_add, swap);
    wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(&words_[1]);
    wr.wr.atomic.rkey = mr_->rkey;
    EXPECT_EQ(pair_.a.Post(wr), 0);
    return pair_.a.PollSend();
  }

 private:
  static constexpr size_t kWords = 8;
  PlainPair& pair_;
  std::vector<uint64_t> words_;
  ibv_mr* const mr_;
};

TEST(Atomic, WordThatPeersCannotMapIsChangedByItsOwner) {
  PlainPair pair;
  UnmappedWord word(pair);
  *word = 40;
  EXPECT_EQ(word.Run(IBV_WR_ATOMIC_FETCH_AND_ADD, 2).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WordAt(pair.a, kBefore), 40u);
  EXPECT_EQ(*word, 42u);
  EXPECT_EQ(word.Run(IBV_WR_ATOMIC_CMP_AND_SWP, 41, 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(WordAt(pair.a, kBefore), 42u);
  EXPECT_EQ(*word, 42u) << "not what was expected there";
  EXPECT_EQ(word.Run(IBV_WR_ATOMIC_CMP_AND_SWP, 42, 1).status, IBV_WC_SUCCESS);
  EXPECT_EQ(*word, 1u);
}

TEST(Atomic, AddsToAWordThatPeersCannotMapCountBesideThoseOfTheCpu) {
  constexpr uint64_t kEach = 200;
  PlainPair pair;
  UnmappedWord word(pair);
  *word = 0;
  std::atomic<bool> over{false};
  uint64_t by_cpu = 0;
  std::thread cpu([&] {
    for (; !over.load(); ++by_cpu) std::atomic_ref(*word).fetch_add(1);
  });
  for (uint64_t i = 0; i < kEach; ++i) {
    ASSERT_EQ(word.Run(IBV_WR_ATOMIC_FETCH_AND_ADD, 1).status, IBV_WC_SUCCESS);
  }
  over.store(true);
  cpu.join();
  EXPECT_EQ(*word, by_cpu + kEach);
}

TEST(Atomic, WordThatItsOwnerMayNotWriteIsARemoteOperationError) {
  PlainPair pair;
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ibv_mr* mr = RegMr(pair.b.pd, page, 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(mprotect(page, 4096, PROT_READ), 0);
  ibv_send_wr wr = Atomic(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, 1);
  wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(page);
  wr.wr.atomic.rkey = mr->rkey;
  ASSERT_EQ(pair.a.Post(wr), 0);
  EXPECT_EQ(pair.a.PollSend().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(DeregMr(mr), 0);
  munmap(page, 4096);
}

}  // namespace atomic_test
}  // namespace sluice::softdc
