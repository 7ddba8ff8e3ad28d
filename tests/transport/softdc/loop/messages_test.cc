// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/messages.h"

#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace sluice::softdc {
namespace messages_test {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    a.Reset(fds[0]);
    b.Reset(fds[1]);
  }
  UniqueFd a, b;
};

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

size_t OpenFds() {
  size_t count = 0;
  DIR* dir = opendir("/proc/self/fd");
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

TEST(SendWithFdsTest, DescriptorArrivesUsableAndCloseOnExec) {
  Pair pair;
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(write(memory.get(), "shared", 6), 6);
  const int sent_fd = memory.get();
  ASSERT_EQ(SendWithFds(pair.a.get(), Bytes("hello"), {&sent_fd, 1}), 0);
  std::array<std::byte, 64> buffer;
  std::vector<UniqueFd> fds;
  ASSERT_EQ(RecvWithFds(pair.b.get(), buffer, &fds), 5);
  EXPECT_EQ(std::memcmp(buffer.data(), "hello", 5), 0);
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_EQ(fcntl(fds[0].get(), F_GETFD), FD_CLOEXEC);
  char text[7] = {};
  EXPECT_EQ(pread(fds[0].get(), text, 6, 0), 6);
  EXPECT_STREQ(text, "shared");
}

TEST(SendWithFdsTest, BoundsAreRefusedBeforeAnythingIsSent) {
  Pair pair;
  const std::vector<std::byte> big(kMaxMessageBytes + 1);
  EXPECT_EQ(SendWithFds(pair.a.get(), big), EMSGSIZE);
  EXPECT_EQ(SendWithFds(pair.a.get(), {}), EINVAL);
  const std::vector<int> many(kMaxMessageFds + 1, 0);
  EXPECT_EQ(SendWithFds(pair.a.get(), Bytes("x"), many), EMSGSIZE);
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(SendWithFdsTest, FullSocketAndGonePeerAreErrnoNotSignals) {
  Pair pair;
  const std::vector<std::byte> message(kMaxMessageBytes);
  int error = 0;
  while (error == 0) error = SendWithFds(pair.a.get(), message);
  EXPECT_EQ(error, EAGAIN);
  pair.b.Reset();
  error = SendWithFds(pair.a.get(), message);
  EXPECT_TRUE(error == EPIPE || error == ECONNRESET) << error;
}

TEST(RecvWithFdsTest, OverlongMessageIsRefusedAndTheNextOneIsWhole) {
  Pair pair;
  ASSERT_EQ(SendWithFds(pair.a.get(), Bytes("too long for four")), 0);
  ASSERT_EQ(SendWithFds(pair.a.get(), Bytes("next")), 0);
  std::array<std::byte, 4> buffer;
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer), 4);
  EXPECT_EQ(std::memcmp(buffer.data(), "next", 4), 0);
}

TEST(RecvWithFdsTest, UnexpectedDescriptorsAreClosedNotLeaked) {
  Pair pair;
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  const std::vector<int> all(kMaxMessageFds, memory.get());
  const size_t before = OpenFds();
  ASSERT_EQ(SendWithFds(pair.a.get(), Bytes("gift"), all), 0);
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer), -1);  // none expected
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_EQ(OpenFds(), before);
}

TEST(RecvWithFdsTest, MoreDescriptorsThanAllowedAreRefused) {
  Pair pair;
  UniqueFd memory(memfd_create("test", MFD_CLOEXEC));
  const size_t before = OpenFds();
  constexpr size_t kCount = kMaxMessageFds + 4;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kCount)] = {};
  char byte = 'x';
  iovec part{&byte, 1};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const int fd = memory.get();
    std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof(int));
  }
  ASSERT_EQ(sendmsg(pair.a.get(), &message, 0), 1);
  std::array<std::byte, 8> buffer;
  std::vector<UniqueFd> fds;
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer, &fds), -1);
  EXPECT_EQ(errno, EMSGSIZE);
  EXPECT_TRUE(fds.empty());
  EXPECT_EQ(OpenFds(), before);
}

TEST(RecvWithFdsTest, EndOfConnectionIsZero) {
  Pair pair;
  pair.a.Reset();
  std::array<std::byte, 8> buffer;
  EXPECT_EQ(RecvWithFds(pair.b.get(), buffer), 0);
}

}  // namespace messages_test
}  // namespace sluice::softdc
