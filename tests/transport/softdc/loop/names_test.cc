// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/names.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace sluice::softdc {
namespace names_test {

std::string UniqueKey(const char* test) { return std::string(test) + std::to_string(getpid()); }

TEST(AbstractNameTest, NamesUserDomainKindAndKey) {
  setenv("SOFTDC_DOMAIN", "lab", 1);
  EXPECT_EQ(AbstractName("cm", "18515"), "softdc/" + std::to_string(geteuid()) + "/lab/cm/18515");
  unsetenv("SOFTDC_DOMAIN");
  EXPECT_EQ(AbstractName("cm", "1"), "softdc/" + std::to_string(geteuid()) + "/0/cm/1");
}

TEST(AbstractNameTest, LongDomainsStayApartAndFit) {
  const std::string common(60, 'x');
  setenv("SOFTDC_DOMAIN", (common + "a").c_str(), 1);
  const std::string a = AbstractName("cm", "1");
  setenv("SOFTDC_DOMAIN", (common + "b").c_str(), 1);
  const std::string b = AbstractName("cm", "1");
  unsetenv("SOFTDC_DOMAIN");
  EXPECT_NE(a, b);
  EXPECT_LE(a.size(), kMaxAbstractNameBytes);
}

TEST(ListenAbstractTest, NameIsTakenOnceAndFreeAgainAfterClose) {
  const std::string name = AbstractName("test", UniqueKey("taken"));
  UniqueFd first = ListenAbstract(name, 4);
  ASSERT_TRUE(first);
  EXPECT_FALSE(ListenAbstract(name, 4));
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_FALSE(HoldAbstract(name));
  EXPECT_EQ(errno, EADDRINUSE);
  first.Reset();
  EXPECT_TRUE(ListenAbstract(name, 4));
}

TEST(ListenAbstractTest, RefusesEmptyAndOverlongNames) {
  EXPECT_FALSE(ListenAbstract("", 1));
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(ListenAbstract(std::string(kMaxAbstractNameBytes + 1, 'n'), 1));
  EXPECT_EQ(errno, ENAMETOOLONG);
  EXPECT_TRUE(
      ListenAbstract(std::string(kMaxAbstractNameBytes - 8, 'n') + UniqueKey("").substr(0, 8), 1));
}

TEST(ConnectAbstractTest, NobodyListensOrOnlyHolds) {
  const std::string name = AbstractName("test", UniqueKey("nobody"));
  EXPECT_FALSE(ConnectAbstract(name));
  EXPECT_EQ(errno, ECONNREFUSED);
  UniqueFd held = HoldAbstract(name);
  ASSERT_TRUE(held);
  EXPECT_FALSE(ConnectAbstract(name));
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST(ConnectAbstractTest, SameUserMeets) {
  const std::string name = AbstractName("test", UniqueKey("meet"));
  UniqueFd listener = ListenAbstract(name, 4);
  ASSERT_TRUE(listener);
  EXPECT_FALSE(AcceptSameUser(listener.get()));
  EXPECT_EQ(errno, EAGAIN);
  UniqueFd client = ConnectAbstract(name);
  ASSERT_TRUE(client);
  UniqueFd server = AcceptSameUser(listener.get());
  ASSERT_TRUE(server);
  EXPECT_TRUE(PeerIsSameUser(server.get()));
}

TEST(ConnectAbstractTest, OtherUsersAreTurnedAwayOnBothSides) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become somebody else";
  const std::string name = AbstractName("test", UniqueKey("stranger"));
  UniqueFd listener = ListenAbstract(name, 4);
  ASSERT_TRUE(listener);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setuid(65534) != 0) _exit(3);
    UniqueFd fd = ConnectAbstract(name);
    _exit(!fd && errno == EACCES ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(AcceptSameUser(listener.get()));
  EXPECT_EQ(errno, EACCES);
}

TEST(HoldAbstractTest, KernelFreesTheNameOfAKilledProcess) {
  const std::string name = AbstractName("test", UniqueKey("killed"));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    UniqueFd held = HoldAbstract(name);
    char byte = held ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  EXPECT_FALSE(HoldAbstract(name));
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(HoldAbstract(name));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace names_test
}  // namespace sluice::softdc
