// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/gids.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace sluice::softdc {
namespace gids_test {

sockaddr_storage Address(const char* text) {
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
  } else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
  }
  return storage;
}

bool IsLocal(const char* text) {
  const sockaddr_storage storage = Address(text);
  return IsLocalAddress(reinterpret_cast<const sockaddr*>(&storage));
}

TEST(LocalGidsTest, FirstEntryIsMappedLoopback) {
  const std::vector<Gid> gids = LocalGids();
  ASSERT_FALSE(gids.empty());
  const uint8_t expected[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
  EXPECT_EQ(std::memcmp(gids[0].raw, expected, 16), 0);
}

TEST(LocalGidsTest, EveryAddressOfTheHostHasOneEntry) {
  ifaddrs* list = nullptr;
  ASSERT_EQ(getifaddrs(&list), 0);
  for (ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Gid gid;
    if (entry->ifa_addr == nullptr || !GidOfAddress(entry->ifa_addr, &gid)) continue;
    EXPECT_GE(IndexOfGid(gid), 0) << entry->ifa_name;
    EXPECT_TRUE(IsLocalAddress(entry->ifa_addr)) << entry->ifa_name;
  }
  freeifaddrs(list);
  const std::vector<Gid> gids = LocalGids();
  for (size_t i = 0; i < gids.size(); ++i) EXPECT_EQ(IndexOfGid(gids[i]), static_cast<int>(i));
}

// A look-up is one system call then, where a reading of the list is ten and a socket.
TEST(LocalGidsTest, TheListOfAddressesIsNotReadForEachLookUp) {
  LocalGids();
  const uint64_t reads = AddressListReads();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(IsLocal("192.0.2.1"));
  EXPECT_LT(AddressListReads() - reads, 10u) << "more than addresses come and go";
}

// Gives the loopback interface, by another name, an address. Takes no descriptor when called again.
bool SetAddress(const char* text) {
  ifreq request{};
  std::strcpy(request.ifr_name, "lo:1");
  const sockaddr_storage address = Address(text);
  std::memcpy(&request.ifr_addr, &address, sizeof(request.ifr_addr));
  static const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  return ioctl(fd, SIOCSIFADDR, &request) == 0;
}

constexpr int kSkipped = 77;

// What `body` returns in a child of its own; negative: it has died.
template <typename Body>
int InChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Runs in a child, in a network of its own. Returns 0, the number of the check that failed, or kSkipped.
int FollowAddresses() {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return kSkipped;
  if (LocalGids().size() != 1) return 1;
  if (!SetAddress("192.0.2.1")) return kSkipped;
  if (!IsLocal("192.0.2.1") || LocalGids().size() != 2) return 2;
  const pid_t grandchild = fork();
  if (grandchild == 0) {
    // Takes nothing from its parent, and finds out by itself.
    if (!SetAddress("192.0.2.2")) _exit(kSkipped);
    _exit(IsLocal("192.0.2.2") && !IsLocal("192.0.2.1") ? 0 : 3);
  }
  int status = 0;
  waitpid(grandchild, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return 3;
  return IsLocal("192.0.2.2") && !IsLocal("192.0.2.1") ? 0 : 4;
}

TEST(LocalGidsTest, FollowAddressesThatComeAndGoAlsoAfterFork) {
  LocalGids();  // the child leaves what its parent knew
  const int failed = InChild(&FollowAddresses);
  if (failed == kSkipped) GTEST_SKIP() << "no network namespace of one's own here";
  EXPECT_EQ(failed, 0);
}

// All others stay as they are.
void LimitFreeDescriptors(int free) {
  const int lowest = dup(STDERR_FILENO);
  close(lowest);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = static_cast<rlim_t>(lowest + free);
  setrlimit(RLIMIT_NOFILE, &limit);
}

// As FollowAddresses.
int FollowAddressesWithoutDescriptors() {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0 || !SetAddress("192.0.2.1")) return kSkipped;
  LimitFreeDescriptors(1);
  if (!IsLocal("192.0.2.1")) return 1;
  LimitFreeDescriptors(100);
  if (!IsLocal("192.0.2.1")) return 2;
  const uint64_t reads = AddressListReads();
  if (!IsLocal("192.0.2.1") || AddressListReads() != reads) return 3;
  // The announcement comes when nothing is left to read the list with.
  LimitFreeDescriptors(0);
  if (!SetAddress("192.0.2.2")) return kSkipped;
  if (!IsLocal("192.0.2.2")) return 4;
  LimitFreeDescriptors(100);
  return IsLocal("192.0.2.2") ? 0 : 5;
}

TEST(LocalGidsTest, FollowAddressesAlsoWhenDescriptorsRunOut) {
  LocalGids();
  const int failed = InChild(&FollowAddressesWithoutDescriptors);
  if (failed == kSkipped) GTEST_SKIP() << "no network namespace of one's own here";
  EXPECT_EQ(failed, 0);
}

TEST(LocalGidsTest, AFailedReadingLeavesTheListAndIsRepeated) {
  const size_t known = LocalGids().size();
  const int failed = InChild([known] {
    LimitFreeDescriptors(0);
    const uint64_t reads = AddressListReads();
    if (LocalGids().size() != known || AddressListReads() != reads) return 1;
    LimitFreeDescriptors(100);
    return LocalGids().size() == known && AddressListReads() > reads ? 0 : 2;
  });
  EXPECT_EQ(failed, 0);
}

// Closes what the list listens to, as closefrom(3) does, and puts `other` at its number.
int TakeOver(int other) {
  for (int fd = 0; fd < 1024; ++fd) {
    int domain = 0;
    socklen_t size = sizeof(domain);
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 || domain != AF_NETLINK)
      continue;
    return dup2(other, fd);
  }
  return -1;
}

int ReadWhatTookOver() {
  LocalGids();
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return 1;
  const int taken = TakeOver(ends[0]);
  if (taken < 0) return kSkipped;
  if (write(ends[1], "bytes", 5) != 5) return 2;
  const uint64_t reads = AddressListReads();
  LocalGids();
  if (AddressListReads() == reads) return 3;
  char got[8];
  if (recv(taken, got, sizeof(got), MSG_DONTWAIT) != 5) return 4;
  return std::memcmp(got, "bytes", 5) == 0 ? 0 : 5;
}

TEST(LocalGidsTest, ADescriptorThatTheProgramTookOverIsLeftAlone) {
  const int failed = InChild(&ReadWhatTookOver);
  if (failed == kSkipped) GTEST_SKIP() << "the kernel announces nothing here";
  EXPECT_EQ(failed, 0);
}

// A child closes its parent's descriptor, not what the program has at its number.
TEST(LocalGidsTest, ADescriptorThatTheProgramTookOverStaysOpenInAChild) {
  const int failed = InChild([] {
    LocalGids();
    const int taken = TakeOver(STDERR_FILENO);
    if (taken < 0) return kSkipped;
    return InChild([taken] { return fcntl(taken, F_GETFD) < 0 ? 1 : 0; });
  });
  if (failed == kSkipped) GTEST_SKIP() << "the kernel announces nothing here";
  EXPECT_EQ(failed, 0);
}

TEST(IsLocalAddressTest, LoopbackAndWildcardsAreHereOthersAreNot) {
  EXPECT_TRUE(IsLocal("127.0.0.1"));
  EXPECT_TRUE(IsLocal("127.44.55.66"));
  EXPECT_TRUE(IsLocal("0.0.0.0"));
  EXPECT_TRUE(IsLocal("::"));
  EXPECT_TRUE(IsLocal("::ffff:127.0.0.1"));
  EXPECT_FALSE(IsLocal("192.0.2.1"));    // TEST-NET-1, RFC 5737
  EXPECT_FALSE(IsLocal("2001:db8::1"));  // RFC 3849
  sockaddr_storage unix_address{};
  unix_address.ss_family = AF_UNIX;
  EXPECT_FALSE(IsLocalAddress(reinterpret_cast<sockaddr*>(&unix_address)));
}

TEST(GidOfAddressTest, Ipv4IsMappedIpv6IsVerbatim) {
  sockaddr_storage storage = Address("10.1.2.3");
  Gid gid;
  ASSERT_TRUE(GidOfAddress(reinterpret_cast<sockaddr*>(&storage), &gid));
  const uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
  EXPECT_EQ(std::memcmp(gid.raw, mapped, 16), 0);
  storage = Address("2001:db8::7");
  ASSERT_TRUE(GidOfAddress(reinterpret_cast<sockaddr*>(&storage), &gid));
  EXPECT_EQ(gid.raw[0], 0x20);
  EXPECT_EQ(gid.raw[15], 7);
}

}  // namespace gids_test
}  // namespace sluice::softdc
