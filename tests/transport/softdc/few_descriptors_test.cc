// SPDX-License-Identifier: Apache-2.0
//
// A sender that has too few free descriptors for all that the answer to its hello carries: it takes one
// segment at a time.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <vector>

#include "gtest/gtest.h"
#include "tests/transport/softdc/dc_child.h"
#include "tests/transport/softdc/dc_node.h"
#include "transport/softdc/loop/unique_fd.h"
#include "transport/softdc/shm/control.h"
#include "transport/softdc/verbs_objects.h"

namespace sluice::softdc {
namespace few_descriptors_test {

constexpr size_t kRoom = 5;  // a link, and a segment
constexpr size_t kBytes = 4096;

int OpenFiles() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                                        std::filesystem::directory_iterator()));
}

// Sends to the address that it is given, and reports the status.
void NarrowSender(int down, int up) {
  DcNode node;
  DcAddress to;
  if (read(down, &to, sizeof(to)) != static_cast<ssize_t>(sizeof(to))) return;
  // The limit is about numbers, and there may be holes below it and files above it: all holes are filled, and some made.
  const rlim_t limit = OpenFiles() + 64;
  const rlimit files{.rlim_cur = limit, .rlim_max = limit};
  if (setrlimit(RLIMIT_NOFILE, &files) != 0) return;
  std::vector<UniqueFd> filling;
  for (int copy = dup(down); copy >= 0; copy = dup(down)) filling.emplace_back(copy);
  if (filling.size() < kRoom) return;
  filling.resize(filling.size() - kRoom);
  EXPECT_EQ(node.Send(to, "x", 1), 0);
  const ibv_wc_status status = node.PollSend().status;
  if (write(up, &status, sizeof(status)) < 0) return;
}

TEST(FewDescriptors, SenderTakesOneSegmentAtATime) {
  Child child(&NarrowSender);
  DcNode node;
  std::vector<UniqueFd> files;
  std::vector<void*> mappings;
  std::vector<ibv_mr*> regions;
  for (size_t i = 1; i < shm::kMaxCarriedSegments; ++i) {  // all that fit, with the slab
    files.emplace_back(memfd_create("segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(files.back().get(), kBytes), 0);
    ASSERT_EQ(fcntl(files.back().get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
    mappings.push_back(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, files.back().get(), 0));
    ASSERT_NE(mappings.back(), MAP_FAILED);
    regions.push_back(RegMr(node.pd, mappings.back(), kBytes, IBV_ACCESS_LOCAL_WRITE));
    ASSERT_NE(regions.back(), nullptr);
  }
  child.Put(node.Address());
  EXPECT_EQ(child.Get<ibv_wc_status>(), IBV_WC_SUCCESS);
  EXPECT_EQ(node.ReceivedText(node.PollReceive()), "x");
  for (ibv_mr* region : regions) EXPECT_EQ(DeregMr(region), 0);
  for (void* mapping : mappings) munmap(mapping, kBytes);
}

}  // namespace few_descriptors_test
}  // namespace sluice::softdc
