// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/outbound_link.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "transport/softdc/model/arrival.h"
#include "transport/softdc/shm/arena.h"

namespace sluice::softdc::shm {
namespace outbound_link_test {

constexpr uint64_t kPage = 4096;

UniqueFd Memfd(uint64_t size_bytes, int seals) {
  UniqueFd fd(memfd_create("outbound_link_test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(fd.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

TEST(MappedFileTest, TakesSealedFilesOfThisUserOnly) {
  EXPECT_NE(MappedFile::Map(Memfd(kPage, F_SEAL_SHRINK).get(), kPage), nullptr);
  EXPECT_EQ(MappedFile::Map(Memfd(kPage, 0).get(), kPage), nullptr)
      << "could shrink under our feet";
  EXPECT_EQ(MappedFile::Map(Memfd(kPage, F_SEAL_SHRINK).get(), 2 * kPage), nullptr)
      << "is shorter than it is said to be";
  EXPECT_EQ(MappedFile::Map(Memfd(kPage, F_SEAL_SHRINK).get(), 0), nullptr);
  EXPECT_EQ(MappedFile::Map(-1, kPage), nullptr);
  const UniqueFd directory(open("/proc/self", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(MappedFile::Map(directory.get(), kPage), nullptr);
  if (geteuid() != 0) GTEST_SKIP() << "giving a file to another user takes root";
  const UniqueFd foreign = Memfd(kPage, F_SEAL_SHRINK);
  ASSERT_EQ(fchown(foreign.get(), 65534, 65534), 0);
  EXPECT_EQ(MappedFile::Map(foreign.get(), kPage), nullptr);
}

TEST(MappedFileTest, AtRefusesRangesThatAreNotInside) {
  const auto file = MappedFile::Map(Memfd(2 * kPage, F_SEAL_SHRINK).get(), 2 * kPage);
  ASSERT_NE(file, nullptr);
  EXPECT_NE(file->At(0, 2 * kPage), nullptr);
  EXPECT_EQ(file->At(kPage, kPage), file->At(0, 1) + kPage);
  EXPECT_EQ(file->At(1, 2 * kPage), nullptr);
  EXPECT_EQ(file->At(UINT64_MAX, 2), nullptr);
  EXPECT_EQ(file->At(2, UINT64_MAX), nullptr);
}

// A link to an arena in this process, with one region whose middle stands in a segment.
class OutboundLinkTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kIndex = 5, kKey = kIndex << 8 | 9, kPd = 3, kSegment = 2;
  static constexpr uint32_t kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  static constexpr uint64_t kAddress = 0x100000, kLength = 10'000;

  OutboundLinkTest() {
    MemoryRegionEntry& region = arena->memory_regions()[kIndex];
    region.access = kAccess;
    region.pd = kPd;
    region.segment = kSegment;
    region.address = kAddress;
    region.length_bytes = kLength;
    region.segment_offset = kPage;
    region.shared_begin = 1000;
    region.shared_end = 9000;
    region.key.store(kKey);
    link = LinkTo(getpid());
  }
  std::unique_ptr<OutboundLink> LinkTo(pid_t pid, UniqueFd socket = UniqueFd()) {
    const uint64_t journal = arena->Allocate(ClaimJournal::Bytes());
    return std::make_unique<OutboundLink>(
        std::move(socket), pid, 1, 1, MappedFile::Map(arena->fd(), kArenaBytes),
        *ClaimJournal::Create(arena->At(journal), ClaimJournal::Bytes()), UniqueFd(),
        /*process_vm=*/true);
  }
  void AddSegment() {
    auto file = MappedFile::Map(Memfd(4 * kPage, F_SEAL_SHRINK).get(), 4 * kPage);
    segment = file->At(0, 4 * kPage);
    link->AddSegment(kSegment, std::move(file));
  }
  RemotePlace Translate(uint64_t into, uint64_t length, uint32_t key = kKey, uint32_t pd = kPd,
                        uint32_t access = IBV_ACCESS_REMOTE_READ) {
    const MemoryRegionEntry* region =
        JudgeRange(link->regions(), key, kAddress + into, length, access, pd, /*qp_number=*/7);
    if (region == nullptr) return {};
    return link->Place(*region, into, length);
  }

  std::unique_ptr<Arena> arena = Arena::Create(1);
  std::unique_ptr<OutboundLink> link;
  std::byte* segment = nullptr;
};

TEST_F(OutboundLinkTest, TranslateDeniesWhatTheRegionDoesNotGrant) {
  AddSegment();
  using Kind = RemotePlace::Kind;
  EXPECT_EQ(Translate(2000, 10).kind, Kind::kMapped);
  EXPECT_EQ(Translate(2000, 10, kKey + 1).kind, Kind::kDenied) << "an older or newer key";
  EXPECT_EQ(Translate(2000, 10, (kIndex + 1) << 8 | 9).kind, Kind::kDenied);
  EXPECT_EQ(Translate(2000, 10, 0).kind, Kind::kDenied);
  EXPECT_EQ(Translate(2000, 10, UINT32_MAX).kind, Kind::kDenied) << "beyond the table";
  EXPECT_EQ(Translate(2000, 10, kKey, kPd + 1).kind, Kind::kDenied);
  EXPECT_EQ(Translate(2000, 10, kKey, kPd, IBV_ACCESS_REMOTE_WRITE).kind, Kind::kDenied);
  EXPECT_EQ(Translate(kLength - 5, 6).kind, Kind::kDenied);
  EXPECT_EQ(Translate(kLength + 1, 0).kind, Kind::kDenied);
  EXPECT_EQ(Translate(-1, 2).kind, Kind::kDenied);
  EXPECT_EQ(Translate(1, UINT64_MAX).kind, Kind::kDenied);
  arena->memory_regions()[kIndex].key.store(0);
  EXPECT_EQ(Translate(2000, 10).kind, Kind::kDenied);
}

TEST_F(OutboundLinkTest, TranslateGivesThePiecesOfARegionOneByOne) {
  AddSegment();
  using Kind = RemotePlace::Kind;
  const RemotePlace head = Translate(0, kLength);
  EXPECT_EQ(head.kind, Kind::kPrivate);
  EXPECT_EQ(head.peer_address, kAddress);
  EXPECT_EQ(head.length_bytes, 1000u);
  EXPECT_EQ(head.key, kKey);
  const RemotePlace middle = Translate(1000, kLength - 1000);
  EXPECT_EQ(middle.kind, Kind::kMapped);
  EXPECT_EQ(middle.address, segment + kPage);
  EXPECT_EQ(middle.length_bytes, 8000u);
  EXPECT_EQ(Translate(1500, 100).address, segment + kPage + 500);
  EXPECT_EQ(Translate(1500, 100).length_bytes, 100u);
  const RemotePlace tail = Translate(9000, 1000);
  EXPECT_EQ(tail.kind, Kind::kPrivate);
  EXPECT_EQ(tail.peer_address, kAddress + 9000);
  EXPECT_EQ(tail.length_bytes, 1000u);
}

TEST_F(OutboundLinkTest, SegmentThatIsNotMappedYetIsNamed) {
  const RemotePlace place = Translate(2000, 10);
  EXPECT_EQ(place.kind, RemotePlace::Kind::kNotMapped);
  EXPECT_EQ(place.segment, kSegment);
}

TEST_F(OutboundLinkTest, EntryThatPointsOutsideItsSegmentIsDenied) {
  AddSegment();
  arena->memory_regions()[kIndex].segment_offset = 4 * kPage;
  EXPECT_EQ(Translate(2000, 10).kind, RemotePlace::Kind::kDenied);
  arena->memory_regions()[kIndex].segment = kMaxPeerSegments;
  EXPECT_EQ(Translate(2000, 10).kind, RemotePlace::Kind::kDenied);
}

TEST_F(OutboundLinkTest, LocateChecksReceiveBuffersAgainstTheTable) {
  AddSegment();
  using Kind = RemotePlace::Kind;
  EXPECT_EQ(link->Locate({.offset = 2000, .key = kKey, .length = 100}).kind, Kind::kMapped);
  EXPECT_EQ(link->Locate({.offset = 2000, .key = kKey + 1, .length = 100}).kind, Kind::kDenied);
  EXPECT_EQ(link->Locate({.offset = kLength, .key = kKey, .length = 1}).kind, Kind::kDenied);
  EXPECT_EQ(link->Locate({.offset = UINT64_MAX, .key = kKey, .length = 1}).kind, Kind::kDenied);
}

TEST_F(OutboundLinkTest, PrivateMemoryIsReadAndWrittenThroughTheKernel) {
  char target[8] = "before";
  MemoryRegionEntry& region = arena->memory_regions()[kIndex];
  region.address = reinterpret_cast<uint64_t>(target);
  region.length_bytes = sizeof(target);
  region.shared_begin = region.shared_end = 0;
  const RemotePlace place = link->Place(link->regions()[kIndex], 0, sizeof(target));
  char got[8] = {};
  EXPECT_EQ(link->ReadPrivate(place, 0, reinterpret_cast<std::byte*>(got), sizeof(got)),
            PrivateCopy::kDone);
  EXPECT_STREQ(got, "before");
  EXPECT_EQ(link->WritePrivate(place, 1, reinterpret_cast<const std::byte*>("xy"), 2),
            PrivateCopy::kDone);
  EXPECT_STREQ(target, "bxyore");
  const RemotePlace nowhere{.kind = RemotePlace::Kind::kPrivate, .peer_address = 8};
  EXPECT_EQ(link->ReadPrivate(nowhere, 0, reinterpret_cast<std::byte*>(got), 4),
            PrivateCopy::kRefused);
}

// The kernel knows of a death before anybody's firmware thread does.
TEST_F(OutboundLinkTest, PrivateMemoryOfAProcessThatJustDiedIsNobodys) {
  std::byte here[8] = {};
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  const std::unique_ptr<OutboundLink> to_child = LinkTo(child);
  const RemotePlace place{.kind = RemotePlace::Kind::kPrivate,
                          .peer_address = reinterpret_cast<uint64_t>(here)};
  EXPECT_EQ(to_child->WritePrivate(place, 0, here, sizeof(here)), PrivateCopy::kDone);
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(to_child->WritePrivate(place, 0, here, sizeof(here)), PrivateCopy::kNobody);
  EXPECT_EQ(to_child->ReadPrivate(place, 0, here, sizeof(here)), PrivateCopy::kNobody);
}

// When the peer's process is gone its id may be another's, here our own.
TEST_F(OutboundLinkTest, PrivateMemoryOfWhoeverGotThePeersProcessIdIsLeftAlone) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
  UniqueFd peers_end(fds[1]);
  const std::unique_ptr<OutboundLink> to_peer = LinkTo(getpid(), UniqueFd(fds[0]));
  char target[8] = "before";
  const RemotePlace place{.kind = RemotePlace::Kind::kPrivate,
                          .peer_address = reinterpret_cast<uint64_t>(target)};
  const auto* text = reinterpret_cast<const std::byte*>("xy");
  EXPECT_EQ(to_peer->WritePrivate(place, 0, text, 2), PrivateCopy::kDone);
  EXPECT_STREQ(target, "xyfore");
  peers_end.Reset();
  EXPECT_EQ(to_peer->WritePrivate(place, 2, text, 2), PrivateCopy::kNobody);
  EXPECT_STREQ(target, "xyfore");
  char got[2] = {};
  EXPECT_EQ(to_peer->ReadPrivate(place, 0, reinterpret_cast<std::byte*>(got), 2),
            PrivateCopy::kNobody);
}

}  // namespace outbound_link_test
}  // namespace sluice::softdc::shm
