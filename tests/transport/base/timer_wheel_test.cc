// SPDX-License-Identifier: Apache-2.0
#include "transport/base/timer_wheel.h"

#include <map>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "transport/base/random.h"

namespace sluice::base {
namespace timer_wheel_test {

constexpr int64_t kTickNs = 1000;

struct Fixture {
  TimerWheel wheel{0, kTickNs};
  std::vector<Timer*> fired;

  static void OnFire(Timer* timer, void* context) {
    static_cast<Fixture*>(context)->fired.push_back(timer);
  }
};

TEST(TimerWheelAdvance, NeverEarlyAndAtMostOneTickLate) {
  for (int64_t deadline : {1, 999, 1000, 1001, 63'000, 64'000, 64'001, 65'000, 4'095'999, 4'096'000,
                           4'096'001, 300'000'000}) {
    Fixture f;
    Timer timer(Fixture::OnFire, &f);
    f.wheel.Schedule(&timer, deadline);
    f.wheel.Advance(deadline - 1);
    EXPECT_TRUE(f.fired.empty()) << deadline;
    f.wheel.Advance(deadline + kTickNs);
    EXPECT_EQ(f.fired.size(), 1u) << deadline;
    EXPECT_FALSE(timer.armed());
  }
}

TEST(TimerWheelSchedule, PastDeadlineFiresAtNextAdvance) {
  Fixture f;
  f.wheel.Advance(5'000'000);
  Timer timer(Fixture::OnFire, &f);
  f.wheel.Schedule(&timer, 1'000);
  EXPECT_EQ(f.wheel.Advance(5'000'000 + kTickNs), 1);
}

TEST(TimerWheelSchedule, BeyondTheSpanIsKeptAndMet) {
  Fixture f;
  Timer timer(Fixture::OnFire, &f);
  const int64_t span_ns = (int64_t{1} << 36) * kTickNs;
  f.wheel.Schedule(&timer, 3 * span_ns + 77);
  for (int lap = 1; lap <= 3; ++lap) {
    EXPECT_EQ(f.wheel.Advance(lap * span_ns), 0);
  }
  EXPECT_EQ(f.wheel.Advance(3 * span_ns + 77 + kTickNs), 1);
}

TEST(TimerWheelAdvance, TimerThatRearmsForThePastFiresOncePerCall) {
  TimerWheel wheel(0, kTickNs);
  struct Rearming {
    TimerWheel* wheel;
    int count = 0;
  } state{&wheel};
  Timer timer(
      [](Timer* self, void* context) {
        auto* s = static_cast<Rearming*>(context);
        ++s->count;
        s->wheel->Schedule(self, 0);
      },
      &state);
  wheel.Schedule(&timer, 0);
  wheel.Advance(1'000'000);
  EXPECT_EQ(state.count, 1);
  wheel.Advance(2'000'000);
  EXPECT_EQ(state.count, 2);
  wheel.Cancel(&timer);
}

TEST(TimerWheelCancel, FromACallbackOfTheSameTick) {
  TimerWheel wheel(0, kTickNs);
  struct Pair {
    TimerWheel* wheel;
    Timer other;
  } state{.wheel = &wheel};
  bool other_fired = false;
  state.other.fire = [](Timer*, void* context) { *static_cast<bool*>(context) = true; };
  state.other.context = &other_fired;
  Timer first(
      [](Timer*, void* context) {
        auto* s = static_cast<Pair*>(context);
        s->wheel->Cancel(&s->other);
      },
      &state);
  wheel.Schedule(&first, 500);
  wheel.Schedule(&state.other, 500);
  EXPECT_EQ(wheel.Advance(10'000), 1);
  EXPECT_FALSE(other_fired);
  EXPECT_EQ(wheel.size(), 0u);
  EXPECT_EQ(wheel.NextWakeNs(), -1);
}

// The wheel against a sorted map, over random schedules, cancels and steps of very different sizes.
TEST(TimerWheelAdvance, AgreesWithASortedMap) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    Fixture f;
    std::vector<std::unique_ptr<Timer>> timers;
    for (int i = 0; i < 200; ++i) timers.push_back(std::make_unique<Timer>(Fixture::OnFire, &f));
    std::map<Timer*, int64_t> armed;
    int64_t now = 0;
    for (int step = 0; step < 3'000; ++step) {
      Timer* timer = timers[random.Below(timers.size())].get();
      switch (random.Below(4)) {
        case 0:
        case 1: {
          const int64_t deadline =
              now + static_cast<int64_t>(random.Next64() >> (34 + random.Below(29)));
          f.wheel.Schedule(timer, deadline);
          armed[timer] = deadline;
          break;
        }
        case 2:
          f.wheel.Cancel(timer);
          armed.erase(timer);
          break;
        default: {
          // Sometimes exactly to where the wheel says, as a sleeper does.
          const int64_t wake = f.wheel.NextWakeNs();
          int64_t target = now + static_cast<int64_t>(random.Next64() >> (36 + random.Below(27)));
          if (wake > now && random.Below(2) == 0) target = wake;
          for (const auto& [t, deadline] : armed) {
            ASSERT_GE(std::max(deadline, now) + 2 * kTickNs, wake);
          }
          f.fired.clear();
          f.wheel.Advance(target);
          now = target;
          for (Timer* t : f.fired) {
            ASSERT_EQ(armed.count(t), 1u);
            ASSERT_LE(armed[t], now);
            armed.erase(t);
          }
          for (const auto& [t, deadline] : armed) ASSERT_GT(deadline + 2 * kTickNs, now);
        }
      }
      ASSERT_EQ(f.wheel.size(), armed.size());
    }
    for (auto& timer : timers) f.wheel.Cancel(timer.get());
    EXPECT_EQ(f.wheel.NextWakeNs(), -1);
  }
}

}  // namespace timer_wheel_test
}  // namespace sluice::base
