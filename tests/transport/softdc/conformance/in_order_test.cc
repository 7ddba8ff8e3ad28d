// SPDX-License-Identifier: Apache-2.0
//
// What a queue pair promises about the order of payload bytes, seen by somebody who polls memory:
// another thread where the device runs on its own, the test itself between two steps of a simulated
// one.
#include <atomic>
#include <cstring>
#include <functional>
#include <string>
#include <thread>

#include "tests/transport/softdc/conformance/conformance_test.h"

namespace sluice::conformance {
namespace {

constexpr size_t kMaxBytes = 4096;
constexpr size_t kArea = Node::kFreeOffset;  // 128-byte aligned

// Whether the last byte of a message that lands at [begin, begin + size) has arrived. Polled as one
// would: by the last word, where it is aligned, because that is what is released.
bool LastByteIs(std::byte* begin, size_t size, std::byte stamp) {
  std::byte* const end = begin + size;
  const size_t in_block = (reinterpret_cast<uintptr_t>(end) - 1) % 128 + 1;
  if (std::min(in_block, size) >= sizeof(uint64_t) && reinterpret_cast<uintptr_t>(end) % 8 == 0) {
    const uint64_t word = std::atomic_ref(*reinterpret_cast<uint64_t*>(end - sizeof(uint64_t)))
                              .load(std::memory_order_acquire);
    return static_cast<std::byte>(word >> 56) == stamp;  // x86 only promises order
  }
  return std::atomic_ref(end[-1]).load(std::memory_order_acquire) == stamp;
}

class PayloadOrder : public ConformanceTest {
 protected:
  // Lets `post(size, stamp)` bring messages of every size to `place`, each wholly of its stamp, and
  // looks at them while they land; `finish(size)` then waits for their completions. The number of bytes
  // that were not there although the last was.
  uint64_t Torn(std::byte* place, const std::function<void(size_t, std::byte)>& post,
                const std::function<void(size_t)>& finish) {
    uint64_t torn = 0;
    std::memset(place, 0, kMaxBytes);
    const auto look = [&](size_t size, std::byte stamp) {
      if (!LastByteIs(place, size, stamp)) return false;
      for (size_t i = 0; i < size; ++i) torn += place[i] != stamp;
      return true;
    };
    // Each size is one byte longer than the one before: its last byte is new.
    const auto stamp_of = [](size_t size) { return static_cast<std::byte>(1 + size % 255); };
    if (!bed().Concurrent()) {
      for (size_t size = 1; size <= kMaxBytes; ++size) {
        post(size, stamp_of(size));
        bed().Await("the last byte", [&] { return look(size, stamp_of(size)); });
        finish(size);
      }
      return torn;
    }
    std::atomic<size_t> looked_at{0};
    std::atomic<bool> stop{false};
    std::thread watcher([&] {
      for (size_t size = 1; size <= kMaxBytes; ++size) {
        for (uint32_t looks = 1; !look(size, stamp_of(size)); ++looks) {
          if (stop.load()) return;
          // On a busy machine the sender may be waiting for this thread's core.
          if (looks % 64 == 0) std::this_thread::yield();
        }
        looked_at.store(size, std::memory_order_release);
      }
    });
    try {
      for (size_t size = 1; size <= kMaxBytes; ++size) {
        post(size, stamp_of(size));
        finish(size);
        bed().Await("the watcher",
                    [&] { return looked_at.load(std::memory_order_acquire) == size; });
      }
    } catch (...) {
      stop = true;
      watcher.join();
      throw;
    }
    watcher.join();
    return torn;
  }

  bool Promised(ibv_qp* qp, ibv_wr_opcode opcode) {
    return api().query_qp_data_in_order(qp, opcode, 0) == 1;
  }
};
ON_EVERY_DEVICE(PayloadOrder);

TEST_P(PayloadOrder, WriteLandsWithItsLastWordLast) {
  PROVES(25, 80);
  Node sender(bed()), target(bed(), OnHost(1));
  if (!Promised(target.dct, IBV_WR_RDMA_WRITE)) GTEST_SKIP() << "the device does not promise it";
  const Address to = target.address();
  for (const size_t shift : {0, 8, 13}) {
    std::byte* const place = target.slab + kArea + shift;
    EXPECT_EQ(Torn(
                  place,
                  [&](size_t size, std::byte stamp) {
                    ASSERT_EQ(sender.Post(to, {.opcode = IBV_WR_RDMA_WRITE,
                                               .text = std::string(size, static_cast<char>(stamp)),
                                               .remote_offset = kArea + shift}),
                              0);
                  },
                  [&](size_t) { EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS); }),
              0u);
  }
}

TEST_P(PayloadOrder, SendLandsWithItsLastWordLast) {
  PROVES(25, 80);
  Node sender(bed()), target(bed(), OnHost(1, {.receives = 0}));
  if (!Promised(target.dct, IBV_WR_SEND)) GTEST_SKIP() << "the device does not promise it";
  const Address to = target.address();
  std::byte* const place = target.slab + kArea;
  EXPECT_EQ(Torn(
                place,
                [&](size_t size, std::byte stamp) {
                  ibv_sge sge{.addr = reinterpret_cast<uint64_t>(place),
                              .length = static_cast<uint32_t>(size),
                              .lkey = target.mr->lkey};
                  ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = &sge, .num_sge = 1};
                  ibv_recv_wr* bad = nullptr;
                  ASSERT_EQ(ibv_post_srq_recv(target.srq, &wr, &bad), 0);
                  ASSERT_EQ(sender.Post(to, {.text = std::string(size, static_cast<char>(stamp))}),
                            0);
                },
                [&](size_t size) {
                  EXPECT_EQ(sender.AwaitSend().status, IBV_WC_SUCCESS);
                  EXPECT_EQ(target.AwaitReceive().byte_len, size);
                }),
            0u);
}

TEST_P(PayloadOrder, ReadLandsWithItsLastWordLast) {
  PROVES(25, 80);
  Node reader(bed()), target(bed(), OnHost(1));
  if (!Promised(reader.dci, IBV_WR_RDMA_READ)) GTEST_SKIP() << "the device does not promise it";
  const Address from = target.address();
  EXPECT_EQ(Torn(
                reader.slab + kArea,
                [&](size_t size, std::byte stamp) {
                  std::memset(target.slab + kArea, static_cast<int>(stamp), size);
                  ASSERT_EQ(reader.Post(from, {.opcode = IBV_WR_RDMA_READ,
                                               .read_bytes = static_cast<uint32_t>(size),
                                               .local_offset = kArea,
                                               .remote_offset = kArea}),
                            0);
                },
                [&](size_t) { EXPECT_EQ(reader.AwaitSend().status, IBV_WC_SUCCESS); }),
            0u);
}

}  // namespace
}  // namespace sluice::conformance
