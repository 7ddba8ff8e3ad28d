// SPDX-License-Identifier: Apache-2.0
//
// Messages into, out of and across memory of a program's own whose middle was moved onto a segment,
// between two processes. Runs three times (BUILD): with memory moved; not moved, through the kernel;
// not moved and without the kernel's help.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/config/config.h"
#include "transport/softdc/device.h"
#include "transport/softdc/shm/address_map.h"
#include "transport/softdc/shm/moved_memory.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBytes = 6 * kPage + 500;
constexpr int kAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Ordinary memory that begins and ends in the middle of a page.
struct Buffer {
  explicit Buffer(ibv_pd* pd) : pages(kBytes + 2 * kPage) {
    const auto first = reinterpret_cast<uint64_t>(pages.data());
    data = pages.data() + (kPage - first % kPage) + 100;
    if (pd != nullptr) mr = RegMr(pd, data, kBytes, kAll);
  }
  void Fill(unsigned seed) {
    for (size_t i = 0; i < kBytes; ++i) data[i] = Byte(seed, i);
  }
  static std::byte Byte(unsigned seed, size_t i) {
    return static_cast<std::byte>(seed + i * 13 + i / 251);
  }
  // Whether bytes [begin, end) are those of `seed` from `from` on, and the others those of `other`.
  bool Holds(unsigned seed, size_t begin, size_t end, size_t from, unsigned other) const {
    for (size_t i = 0; i < kBytes; ++i) {
      const bool in = i >= begin && i < end;
      if (data[i] != (in ? Byte(seed, from + i - begin) : Byte(other, i))) return false;
    }
    return true;
  }
  std::vector<std::byte> pages;
  std::byte* data = nullptr;
  ibv_mr* mr = nullptr;
};

struct Range {
  size_t begin, end;
};
// In each piece alone, across each border, and all of it.
const Range kRanges[] = {{0, kBytes},
                         {10, 200},
                         {kPage + 1, 3 * kPage},
                         {kBytes - 300, kBytes - 1},
                         {3000, kPage + 900},
                         {4 * kPage + 7, kBytes - 3}};

enum class Way { kWrite, kRead };

int Post(DcNode& node, const DcAddress& to, const Buffer& local, size_t local_at, uint64_t remote,
         uint32_t rkey, size_t length, Way way) {
  ibv_qp_ex* qp = node.dci_ex;
  ibv_wr_start(qp);
  qp->wr_id = 1;
  qp->wr_flags = IBV_SEND_SIGNALED;
  way == Way::kWrite ? ibv_wr_rdma_write(qp, rkey, remote) : ibv_wr_rdma_read(qp, rkey, remote);
  ibv_wr_set_sge(qp, local.mr->lkey, reinterpret_cast<uint64_t>(local.data + local_at),
                 static_cast<uint32_t>(length));
  mlx5dv_wr_set_dc_addr(node.dci_dv, node.ah, to.dctn, to.dc_key);
  return ibv_wr_complete(qp);
}

struct Told {
  DcAddress address;
  uint64_t buffer = 0;
  uint32_t rkey = 0;
  uint64_t moved_bytes = 0;
};

// A peer whose buffer holds seed 1; each byte it gets is a range of its own buffer to look at; it
// answers whether that range holds seed 2 and the rest is as before.
void Peer(int down, int up) {
  DcNode node;
  Buffer buffer(node.pd);
  buffer.Fill(1);
  const Told told{.address = node.Address(),
                  .buffer = reinterpret_cast<uint64_t>(buffer.data),
                  .rkey = buffer.mr->rkey,
                  .moved_bytes = shm::MovedMemory::Get().moved_bytes()};
  if (write(up, &told, sizeof(told)) < 0) return;
  unsigned char index;
  while (read(down, &index, 1) == 1) {
    const Range& range = kRanges[index];
    const char good = buffer.Holds(2, range.begin, range.end, range.begin, 1) ? 1 : 0;
    buffer.Fill(1);
    if (write(up, &good, 1) != 1) return;
  }
}

void ExpectTransfersWork(uint64_t moved_bytes) {
  Child peer(Peer);
  const auto told = peer.Get<Told>();
  EXPECT_EQ(told.moved_bytes, moved_bytes);
  DcNode node;
  Buffer ours(node.pd);
  for (size_t i = 0; i < std::size(kRanges); ++i) {
    const auto [begin, end] = kRanges[i];
    ours.Fill(2);
    ASSERT_EQ(Post(node, told.address, ours, begin, told.buffer + begin, told.rkey, end - begin,
                   Way::kWrite),
              0);
    ASSERT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    peer.Put(static_cast<unsigned char>(i));
    EXPECT_EQ(peer.Get<char>(), 1) << "write of range " << i;
    ours.Fill(3);
    ASSERT_EQ(Post(node, told.address, ours, begin, told.buffer + begin, told.rkey, end - begin,
                   Way::kRead),
              0);
    ASSERT_EQ(node.PollSend().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(ours.Holds(1, begin, end, begin, 3)) << "read of range " << i;
  }
  EXPECT_EQ(DeregMr(ours.mr), 0);
}

bool Moves() { return EnvironmentDials()->memory.move_private; }

TEST(PrivateMemory, WritesAndReadsReachEveryPieceOfARegion) {
  ExpectTransfersWork(Moves() ? 5 * kPage : 0);
}

TEST(PrivateMemory, SendsFillReceiveBuffersAcrossPieces) {
  DcNode to({.receives = 0}), from;
  Buffer buffer(to.pd);
  buffer.Fill(1);
  Buffer ours(from.pd);
  ours.Fill(2);
  for (const auto& [begin, end] : kRanges) {
    ibv_sge sge{.addr = reinterpret_cast<uint64_t>(buffer.data) + begin,
                .length = static_cast<uint32_t>(end - begin),
                .lkey = buffer.mr->lkey};
    ibv_recv_wr receive{}, *bad = nullptr;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_srq_recv(to.srq, &receive, &bad), 0);
    ibv_qp_ex* qp = from.dci_ex;
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_sge(qp, ours.mr->lkey, reinterpret_cast<uint64_t>(ours.data),
                   static_cast<uint32_t>(end - begin));
    const DcAddress address = to.Address();
    mlx5dv_wr_set_dc_addr(from.dci_dv, from.ah, address.dctn, address.dc_key);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    ASSERT_EQ(from.PollSend().status, IBV_WC_SUCCESS);
    EXPECT_EQ(to.PollReceive().byte_len, end - begin);
    EXPECT_TRUE(buffer.Holds(2, begin, end, 0, 1));
    buffer.Fill(1);
  }
  EXPECT_EQ(DeregMr(buffer.mr), 0);
  EXPECT_EQ(DeregMr(ours.mr), 0);
}

TEST(PrivateMemory, DeregistrationMakesItPrivateAgain) {
  DcNode node;
  Buffer buffer(node.pd);
  buffer.Fill(4);
  const auto first_page = reinterpret_cast<uint64_t>(buffer.data) / kPage * kPage + kPage;
  EXPECT_NE(shm::IsPlainPrivate(first_page, first_page + 4 * kPage), Moves());
  EXPECT_EQ(DeregMr(buffer.mr), 0);
  EXPECT_TRUE(shm::IsPlainPrivate(first_page, first_page + 4 * kPage));
  EXPECT_TRUE(buffer.Holds(4, 0, kBytes, 0, 4));
}

TEST(PrivateMemory, RegionOutlivesAnotherOfTheSameBytesInAnotherContext) {
  DcNode one, two;
  Buffer buffer(one.pd);
  buffer.Fill(1);
  ibv_mr* other = RegMr(two.pd, buffer.data, kBytes, kAll);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(DeregMr(buffer.mr), 0);
  Buffer ours(one.pd);
  ours.Fill(2);
  ASSERT_EQ(Post(one, two.Address(), ours, 0, reinterpret_cast<uint64_t>(buffer.data), other->rkey,
                 kBytes, Way::kWrite),
            0);
  EXPECT_EQ(one.PollSend().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(buffer.Holds(2, 0, kBytes, 0, 1));
  EXPECT_EQ(DeregMr(other), 0);
  EXPECT_EQ(DeregMr(ours.mr), 0);
}

}  // namespace
}  // namespace sluice::softdc
