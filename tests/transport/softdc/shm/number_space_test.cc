// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/shm/number_space.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "transport/softdc/loop/names.h"

namespace sluice::softdc {
namespace number_space_test {

struct Served {
  std::set<int> fds;
  NumberSpace::BlockHook on = [this](int fd) { EXPECT_TRUE(fds.insert(fd).second); };
  NumberSpace::BlockHook off = [this](int fd) { EXPECT_EQ(fds.erase(fd), 1u); };
};

bool SomebodyListens(uint32_t number) {
  return static_cast<bool>(ConnectAbstract(BlockSocketName(number / kNumbersPerBlock)));
}

TEST(NumberSpaceTest, NumbersGoForwardAndAreNeverOfTheFirstBlock) {
  Served served;
  NumberSpace space(served.on, served.off);
  uint32_t last = 0;
  for (int i = 0; i < 600; ++i) {
    const uint32_t number = space.Allocate();
    EXPECT_GT(number, last);
    EXPECT_GE(number, kNumbersPerBlock);
    EXPECT_LT(number, 1u << 24);
    last = number;
    EXPECT_TRUE(space.Free(number)) << "freed at once, and still not handed out again";
  }
}

TEST(NumberSpaceTest, FreeRefusesWhatIsNotOut) {
  Served served;
  NumberSpace space(served.on, served.off);
  const uint32_t number = space.Allocate();
  EXPECT_FALSE(space.Free(number + 1));
  EXPECT_FALSE(space.Free(0));
  EXPECT_TRUE(space.Free(number));
  EXPECT_FALSE(space.Free(number));
}

TEST(NumberSpaceTest, TwoSpacesShareNoNumber) {
  Served served;
  NumberSpace one(served.on, served.off), two(served.on, served.off);
  std::set<uint32_t> seen;
  for (int i = 0; i < 300; ++i) {
    EXPECT_TRUE(seen.insert(one.Allocate()).second);
    EXPECT_TRUE(seen.insert(two.Allocate()).second);
  }
}

TEST(NumberSpaceTest, NumbersOfOneThatIsGoneComeBackAtOnce) {
  Served served;
  uint32_t number;
  {
    NumberSpace gone(served.on, served.off);
    number = gone.Allocate();
  }
  EXPECT_EQ(NumberSpace(served.on, served.off).Allocate(), number);
}

// Each try is a socket; a thousand contexts that tried each other's names would make half a million.
TEST(NumberSpaceTest, BlocksOfThisProcessAreNotTriedAgain) {
  Served served;
  std::vector<std::unique_ptr<NumberSpace>> spaces;
  const auto add = [&] {
    spaces.push_back(std::make_unique<NumberSpace>(served.on, served.off));
    EXPECT_NE(spaces.back()->Allocate(), kNoQpNumber);
  };
  add();
  const uint64_t tried = BlockNamesTried();
  for (int i = 0; i < 50; ++i) add();
  EXPECT_LE(BlockNamesTried() - tried, 60u);
}

TEST(NumberSpaceTest, AForkedChildAsksTheKernel) {
  Served served;
  auto space = std::make_unique<NumberSpace>(served.on, served.off);
  const uint32_t number = space->Allocate();
  const pid_t child = fork();
  if (child == 0) {
    const uint32_t other = NumberSpace([](int) {}, [](int) {}).Allocate();
    _exit(other != kNoQpNumber && other != number ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  space.reset();
  EXPECT_EQ(NumberSpace(served.on, served.off).Allocate(), number);
}

TEST(BlockOfTimeTest, NumbersOfOneThatIsGoneStayAwayForMinutes) {
  constexpr int64_t kBornNs = 1'000'000'000'000'000;
  constexpr int64_t kMinuteNs = 60'000'000'000;
  Served served;
  std::set<uint32_t> numbers;
  {
    NumberSpace gone(served.on, served.off, BlockOfTime(kBornNs));
    for (uint32_t i = 0; i < 2 * kNumbersPerBlock; ++i) numbers.insert(gone.Allocate());
  }
  for (int64_t later_ns = 40'000'000; later_ns < 20 * kMinuteNs; later_ns += kMinuteNs / 7) {
    NumberSpace newcomer(served.on, served.off, BlockOfTime(kBornNs + later_ns));
    EXPECT_FALSE(numbers.contains(newcomer.Allocate())) << later_ns;
  }
}

TEST(BlockOfTimeTest, IsAlwaysABlockThatExists) {
  for (int64_t at_ns = 0; at_ns < int64_t{3600} * 1'000'000'000; at_ns += 19'999'999) {
    EXPECT_GE(BlockOfTime(at_ns), kFirstBlock);
    EXPECT_LT(BlockOfTime(at_ns), kBlocks);
  }
}

TEST(NumberSpaceTest, BlockIsServedWhileAnyOfItsNumbersIsOut) {
  Served served;
  NumberSpace space(served.on, served.off);
  std::vector<uint32_t> block;
  for (uint32_t i = 0; i < kNumbersPerBlock; ++i) block.push_back(space.Allocate());
  const uint32_t next = space.Allocate();
  EXPECT_EQ(served.fds.size(), 2u);
  for (uint32_t i = 0; i + 1 < kNumbersPerBlock; ++i) EXPECT_TRUE(space.Free(block[i]));
  EXPECT_TRUE(SomebodyListens(block[0]));
  EXPECT_TRUE(space.Free(block.back()));
  EXPECT_FALSE(SomebodyListens(block[0])) << "given back whole: anybody may take it";
  EXPECT_TRUE(SomebodyListens(next));
  EXPECT_EQ(served.fds.size(), 1u);
}

TEST(NumberSpaceTest, EndOfTheSpaceGivesItsBlocksBack) {
  Served served;
  uint32_t number = 0;
  {
    NumberSpace space(served.on, served.off);
    number = space.Allocate();
    EXPECT_TRUE(SomebodyListens(number));
  }
  EXPECT_FALSE(SomebodyListens(number));
  EXPECT_TRUE(served.fds.empty());
}

TEST(NumberSpaceTest, DeadProcessHoldsNoBlock) {
  int told[2];
  ASSERT_EQ(pipe(told), 0);
  const pid_t child = fork();
  if (child == 0) {
    NumberSpace space([](int) {}, [](int) {});
    const uint32_t number = space.Allocate();
    if (write(told[1], &number, sizeof(number)) != sizeof(number)) _exit(1);
    pause();
  }
  uint32_t number = 0;
  ASSERT_EQ(read(told[0], &number, sizeof(number)), static_cast<ssize_t>(sizeof(number)));
  EXPECT_TRUE(SomebodyListens(number));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_FALSE(SomebodyListens(number));
  close(told[0]);
  close(told[1]);
}

}  // namespace number_space_test
}  // namespace sluice::softdc
