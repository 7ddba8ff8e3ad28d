// SPDX-License-Identifier: Apache-2.0
//
// Kills a process at every named point of kill_points.inc, kKillsPerPoint times each, while another
// process sends and the owner polls, sleeps and repairs; then checks that nothing was lost,
// doubled, torn or left hanging. A hang shows as a test timeout: the owner sleeps without one.
// Bounded in work: kills and messages are counted.
//
// Everything forks before any thread exists.
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cstdio>
#include <functional>

#include "tests/transport/softdc/shm/mini_fabric.h"

static_assert(SOFTDC_KILL_POINTS, "link rings_instrumented");

namespace sluice::softdc::shm {
namespace {

constexpr int kKillsPerPoint = 60;
constexpr uint32_t kVictim = 0, kSurvivor = 1, kRival = 2, kLinks = 3;
constexpr KillPoint kFirstOwnerPoint = KillPoint::kSlotHalfWritten;
constexpr uint32_t kVictimMessages = 4000;  // gives up (and the run does not count) after that many
constexpr uint32_t kMessagesAfterRepair = 40;

// The plan of a child, read by its hook. One process, one thread: plain globals.
struct Plan {
  KillPoint point{};
  uint32_t die_at_hit = 0;
  uint32_t hits = 0;
  bool in_hook = false;
  std::function<void()> on_intent;  // what a rival does between the victim's intent and its CAS
} plan;

void Hook(KillPoint point) {
  if (plan.in_hook) return;
  plan.in_hook = true;
  if (point == plan.point && ++plan.hits == plan.die_at_hit) raise(SIGKILL);
  if (point == KillPoint::kIntentWritten && plan.on_intent) plan.on_intent();
  plan.in_hook = false;
}

template <typename Body>
pid_t Fork(Body body) {
  const pid_t pid = fork();
  if (pid == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  return pid;
}

int PidFd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool Readable(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

struct Tally {
  int kills = 0;
  int misses = 0;
  uint64_t reposted = 0;
  uint64_t deferred = 0;
  uint64_t unread = 0;
  uint64_t owed_bells = 0;
};

// One run: a victim with a death sentence, a survivor that sends until told to stop, and the owner,
// here.
void KillASenderOnce(KillPoint point, uint32_t die_at_hit, uint32_t seed, Tally* tally) {
  MiniOwner owner(kLinks);
  const SharedArea flags(4096);
  auto* stop = new (flags.data()) std::atomic<bool>(false);

  const pid_t victim = Fork([&] {
    std::minstd_rand random(seed);
    MiniSender sender(&owner, kVictim), rival(&owner, kRival);
    plan = {.point = point, .die_at_hit = die_at_hit, .on_intent = {}};
    const bool take_all = point == KillPoint::kIntentCleared;
    const uint32_t rival_in = point == KillPoint::kClaimLost || take_all ? 1 : 8;
    plan.on_intent = [&] {
      if (random() % rival_in != 0) return;
      while (rival.Send(1, 20, random) != 0 && take_all) {
      }
    };
    kill_point_hook = Hook;
    while (sender.next() < kVictimMessages) {
      if (sender.Send(1 + random() % kMiniBatch, 20, random) == 0 || random() % 4 == 0) {
        sched_yield();
      }
    }
  });
  const pid_t survivor = Fork([&] {
    std::minstd_rand random(seed + 1);
    MiniSender sender(&owner, kSurvivor);
    while (!stop->load(std::memory_order_relaxed)) {
      if (sender.Send(1 + random() % kMiniBatch, 20, random) == 0 || random() % 4 == 0) {
        sched_yield();
      }
    }
  });

  const int victim_fd = PidFd(victim), survivor_fd = PidFd(survivor);
  ASSERT_GE(victim_fd, 0);
  ASSERT_GE(survivor_fd, 0);
  std::minstd_rand random(seed + 2);
  bool victim_dead = false, repaired = false, survivor_done = false;
  uint32_t enough = 0;
  while (!survivor_done) {
    const bool lag = random() % 2 == 0;  // so that deaths find CQEs unread
    const int polled = lag ? 0 : owner.Poll();
    if (::testing::Test::HasFatalFailure()) break;
    if (!victim_dead && Readable(victim_fd)) {
      victim_dead = true;
      for (const uint32_t link : {kVictim, kRival}) {
        owner.link[link].consumer.ForEachUnread([&](const Cqe&) { ++tally->unread; });
        if (owner.armed.OwesAfterDeath(link, !owner.link[link].consumer.Empty())) {
          owner.RingBell();
          ++tally->owed_bells;
        }
      }
    }
    if (victim_dead && !repaired) {
      repaired = true;
      for (const int link : {kVictim, kRival}) {
        const RepairResult result = owner.RepairAfter(link, {kSurvivor});
        tally->reposted += result.reposted;
        tally->deferred += result.deferred;
        repaired &= result.deferred == 0;
      }
      enough = owner.received[kSurvivor] + kMessagesAfterRepair;
    }
    if (repaired && owner.received[kSurvivor] >= enough) stop->store(true);
    if (polled != 0 || (victim_dead && !repaired)) continue;

    owner.armed.Arm(ArmedWord::Mode::kAny);
    if (!owner.Idle() && owner.armed.TryTake(ArmedWord::kOwnerLink, true)) owner.RingBell();
    pollfd fds[] = {{.fd = owner.bell, .events = POLLIN, .revents = 0},
                    {.fd = survivor_fd, .events = POLLIN, .revents = 0},
                    {.fd = victim_fd, .events = POLLIN, .revents = 0}};
    ASSERT_GT(poll(fds, victim_dead ? 2 : 3, -1), 0);
    uint64_t rings;
    if (fds[0].revents != 0 && read(owner.bell, &rings, sizeof rings) > 0) {
      owner.armed.CollectEvent();
    }
    survivor_done = fds[1].revents != 0;
  }
  stop->store(true);
  if (::testing::Test::HasFatalFailure()) kill(victim, SIGKILL);

  int status = 0;
  ASSERT_EQ(waitpid(victim, &status, 0), victim);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    ++tally->kills;
  } else {
    EXPECT_EQ(status, 0) << "the victim saw something wrong";
    ++tally->misses;
  }
  ASSERT_EQ(waitpid(survivor, &status, 0), survivor);
  EXPECT_EQ(status, 0) << "the survivor saw something wrong";
  close(victim_fd);
  close(survivor_fd);
  if (::testing::Test::HasFatalFailure()) return;

  owner.Poll();
  EXPECT_TRUE(owner.Idle());
  EXPECT_EQ(owner.received[kSurvivor], owner.link[kSurvivor].sent->load());
  for (const uint32_t link :
       {kVictim, kRival}) {  // the last publish may not have been counted any more
    EXPECT_GE(owner.received[link], owner.link[link].sent->load());
    EXPECT_LE(owner.received[link], owner.link[link].sent->load() + 1);
  }
  owner.ExpectWhole();
}

// The other way round: the owner dies, the sender is here. Until it learns of the death it may take
// what is posted, never anything torn, and comes to an end by itself.
void KillTheOwnerOnce(KillPoint point, uint32_t die_at_hit, uint32_t seed, Tally* tally) {
  MiniOwner owner(1);
  const SharedArea flags(4096);
  auto* stop = new (flags.data()) std::atomic<bool>(false);
  const pid_t pid = Fork([&] {
    plan = {.point = point, .die_at_hit = die_at_hit, .on_intent = {}};
    kill_point_hook = Hook;
    while (!stop->load(std::memory_order_relaxed)) {
      if (owner.Poll() == 0) sched_yield();
    }
  });
  const int pid_fd = PidFd(pid);
  ASSERT_GE(pid_fd, 0);
  std::minstd_rand random(seed);
  MiniSender sender(&owner, 0);
  bool dead = false;
  while (!dead && sender.next() < kVictimMessages && !::testing::Test::HasFailure()) {
    if (sender.Send(1 + random() % kMiniBatch, 20, random) != 0) continue;
    dead = Readable(pid_fd);
    sched_yield();
  }
  stop->store(true);
  uint32_t taken_from_the_dead = 0;
  for (int tries = 0; dead && tries < 100; ++tries) {
    taken_from_the_dead += sender.Send(1 + random() % kMiniBatch, 20, random);
  }
  EXPECT_LE(taken_from_the_dead, kMiniCapacity);
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  close(pid_fd);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    ++tally->kills;
  } else {
    EXPECT_EQ(status, 0) << "the owner saw something wrong";
    ++tally->misses;
  }
}

// Rare points are hit once or twice in a run, the others many times: die anywhere among the first
// so many.
uint32_t HitsToChooseFrom(KillPoint point) {
  switch (point) {
    case KillPoint::kArmedTaken:
    case KillPoint::kBellRung:
      return 4;
    case KillPoint::kClaimLost:
    case KillPoint::kIntentCleared:
      return 12;
    default:
      return 60;
  }
}

TEST(RingsKillTest, DeathAtEveryNamedPointCostsNobodyElseAnything) {
  std::minstd_rand random(20);
  std::printf("%-20s %6s %6s %9s %9s %7s %6s\n", "killed at", "kills", "missed", "reposted",
              "deferred", "unread", "owed");
  for (int i = 0; i < static_cast<int>(kFirstContextPoint); ++i) {
    const auto point = static_cast<KillPoint>(i);
    Tally tally;
    while (tally.kills < kKillsPerPoint && tally.misses < kKillsPerPoint) {
      const auto hit = static_cast<uint32_t>(1 + random() % HitsToChooseFrom(point));
      const auto seed = static_cast<uint32_t>(random());
      if (point < kFirstOwnerPoint) {
        KillASenderOnce(point, hit, seed, &tally);
      } else {
        KillTheOwnerOnce(point, hit, seed, &tally);
      }
      ASSERT_FALSE(::testing::Test::HasFailure())
          << kKillPointNames[i] << " hit " << hit << " seed " << seed;
    }
    std::printf("%-20s %6d %6d %9lu %9lu %7lu %6lu\n", kKillPointNames[i], tally.kills,
                tally.misses, tally.reposted, tally.deferred, tally.unread, tally.owed_bells);
    EXPECT_GE(tally.kills, kKillsPerPoint) << kKillPointNames[i] << " was hardly ever reached";
    const bool holds_wqes = point >= KillPoint::kWqeClaimed && point <= KillPoint::kCqeUnstamped;
    if (holds_wqes) {
      EXPECT_GE(tally.reposted, kKillsPerPoint) << "each such death holds one at least";
    }
    if (point == KillPoint::kArmedTaken) {
      EXPECT_GT(tally.owed_bells, 0u);
    }
  }
}

// A living process stands between its intent and its CAS, for the tickets that a now dead one won.
TEST(RingsKillTest, RepairDefersWhileALivingOneStandsBeforeItsCas) {
  static MiniOwner* owner;  // the hook is a plain function
  static RepairResult meanwhile;
  MiniOwner the_owner(2);
  owner = &the_owner;
  meanwhile = {};
  kill_point_hook = [](KillPoint point) {
    if (point != KillPoint::kIntentWritten) return;
    kill_point_hook = nullptr;
    auto claimer = *SrqClaimer::Attach(owner->srq_area.data(), owner->srq_area.size());
    std::array<ClaimedWqe, 3> wqes;
    EXPECT_EQ(claimer.Claim(3, owner->link[0].journal, wqes).count,
              3u);  // and dies here
    meanwhile = owner->RepairAfter(0, {1});
  };
  std::minstd_rand random(1);
  MiniSender living(owner, 1);
  EXPECT_EQ(living.Send(2, 1'000'000, random), 2u);
  EXPECT_EQ(meanwhile.reposted, 1u) << "the third ticket is in nobody else's intent";
  EXPECT_EQ(meanwhile.deferred, 2u);
  EXPECT_EQ(owner->RepairAfter(0, {1}).reposted, 2u);
  EXPECT_EQ(owner->Poll(), 2);
  owner->ExpectWhole();
}

// The line would otherwise cover tickets of others for as long as this Link stays idle.
TEST(RingsKillTest, ClaimThatLosesAllItsTicketsTakesItsIntentBack) {
  static MiniOwner* owner;
  MiniOwner the_owner(2);
  owner = &the_owner;
  kill_point_hook = [](KillPoint point) {
    if (point != KillPoint::kIntentWritten) return;
    kill_point_hook = nullptr;
    auto claimer = *SrqClaimer::Attach(owner->srq_area.data(), owner->srq_area.size());
    std::array<ClaimedWqe, kMiniCapacity> wqes;
    EXPECT_EQ(claimer.Claim(kMiniCapacity, owner->link[0].journal, wqes).count, kMiniCapacity);
  };
  std::minstd_rand random(1);
  MiniSender loser(owner, 1);
  EXPECT_EQ(loser.Send(2, 1'000'000, random), 0u);
  EXPECT_EQ(owner->link[1].journal.Read().count, 0u);
  EXPECT_EQ(owner->RepairAfter(0, {1}).reposted, kMiniCapacity);
  owner->ExpectWhole();
}

// While a sender stands just before or just after its CAS, others overtake it by two laps, so that
// the slot of its ticket is overwritten with a later WQE. It must not end up with that one.
TEST(RingsKillTest, ClaimIsNotMisledByASlotReusedAroundItsCas) {
  for (const KillPoint stop_at : {KillPoint::kIntentWritten, KillPoint::kWqeClaimed}) {
    static MiniOwner* owner;
    static KillPoint where;
    MiniOwner the_owner(2);
    owner = &the_owner;
    where = stop_at;
    kill_point_hook = [](KillPoint point) {
      if (point != where) return;
      kill_point_hook = nullptr;
      std::minstd_rand random(1);
      MiniSender other(owner, 0);
      for (uint32_t sent = 0; sent < 2 * kMiniCapacity;) {
        sent += other.Send(1, 1'000'000, random);
        owner->Poll();
      }
    };
    std::minstd_rand random(1);
    MiniSender slow(owner, 1);
    EXPECT_EQ(slow.Send(1, 1'000'000, random), 1u);
    EXPECT_EQ(owner->Poll(), 1);
    EXPECT_EQ(owner->received[0], 2 * kMiniCapacity);
    EXPECT_EQ(owner->received[1], 1u);
    owner->ExpectWhole();
  }
}

}  // namespace
}  // namespace sluice::softdc::shm
