// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/host.h"

#include <arpa/inet.h>
#include <malloc.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
// <sanitizer/allocator_interface.h>, which GCC does not install everywhere.
extern "C" size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace sluice::hostile {
namespace {

using softdc::sim::Activity;
using softdc::sim::Simulation;

constexpr int64_t kPollDelayNs = 100;
constexpr int64_t kNapNs = 100 * kUs;
// Who has more to do after so many passes can not sleep.
constexpr int kMostPasses = 1'000;

}  // namespace

size_t HeapBytes() {
#if defined(__SANITIZE_ADDRESS__)
  return __sanitizer_get_current_allocated_bytes();
#else
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
#endif
}

Host::Host(Simulation& simulation, uint32_t node, uint64_t seed)
    : simulation_(simulation),
      node_(node),
      clock_(simulation),
      random_(seed * 1'000'003 + node),
      commands_(simulation, node, random_, [this] { Wake(); }) {
  const As as(simulation, node);
  device_ = *device::Device::Open("softdc0", {&Simulation::Verbs()});
}

Host::~Host() { *alive_ = false; }

std::string Host::AddressOf(uint32_t node) {
  char text[INET_ADDRSTRLEN];
  const in_addr address = Simulation::Address(node);
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

// Its own threads wake it, whatever its descriptor says.
void Host::Wake() {
  if (loop_ == Loop::kSpins) return OnActivity(Activity::kEvent);
  if (std::exchange(look_due_, true)) return;
  After(kPollDelayNs, [this] { LookOnce(); });
}

void Host::OnActivity(Activity what) {
  if (loop_ == Loop::kSleeps) {
    pollfd one{fd(), POLLIN, 0};
    if (asleep_ && one.fd >= 0 && poll(&one, 1, 0) == 0) return;
    return Wake();
  }
  deeper_ = deeper_ || (what != Activity::kCompletion && what != Activity::kWritten);
  if (std::exchange(look_due_, true)) return;
  After(kPollDelayNs, [this] { Look(); });
}

int Host::Pass() {
  const size_t before = weighed_ ? HeapBytes() : 0;
  const int done = Poll();
  const size_t after = weighed_ ? HeapBytes() : 0;
  if (after > before) largest_pass_bytes_ = std::max(largest_pass_bytes_, after - before);
  steps_ += static_cast<uint64_t>(done);
  return done;
}

// One pass, and the time that it takes.
void Host::Look() {
  look_due_ = false;
  if (std::exchange(deeper_, false)) PrepareToSleep();
  const int done = Pass();
  if (done == 0) return Nap(kNapNs);
  look_due_ = true;
  After(kPollDelayNs + done * step_ns_, [this] { Look(); });
}

void Host::LookOnce() {
  look_due_ = false;
  if (std::exchange(asleep_, false)) AfterSleep();
  Rest(Pass());
}

// Behind a pass that did so many things.
void Host::Rest(int done) {
  barren_ = done == 0 ? barren_ + 1 : 0;
  if (!PrepareToSleep()) {
    if (barren_ == kMostPasses) ++sleepless_;
    if (std::exchange(look_due_, true)) return;
    return After(kPollDelayNs + done * step_ns_, [this] { LookOnce(); });
  }
  barren_ = 0;
  asleep_ = true;
  const int64_t limit_ns = SleepLimitNs();
  const uint64_t sleep = ++sleeps_;
  if (limit_ns >= 0) {
    After(std::max<int64_t>(limit_ns, 1), [this, sleep] {
      if (asleep_ && sleep == sleeps_ && !look_due_) LookOnce();
    });
  }
  OnActivity(Activity::kEvent);  // its descriptor may be readable already
}

void Host::Acted() {
  if (loop_ == Loop::kSpins) return OnActivity(Activity::kEvent);
  if (look_due_) return;
  asleep_ = false;
  Rest(1);
}

void Host::Nap(int64_t delay_ns) {
  if (std::exchange(nap_due_, true)) return;
  After(delay_ns, [this] {
    nap_due_ = false;
    int passes = 0;
    int done = 0;
    for (bool nothing_left = false; (done = Pass()) != 0 || !nothing_left;) {
      if (done != 0) restless_now_ = 0;
      nothing_left = PrepareToSleep();
      if (++passes < kMostPasses) continue;
      ++sleepless_;
      return Nap(kNapNs);
    }
    const int64_t limit_ns = SleepLimitNs();
    restless_now_ = limit_ns == 0 ? restless_now_ + 1 : 0;
    restless_ = std::max(restless_, restless_now_);
    if (limit_ns >= 0) Nap(std::clamp<int64_t>(limit_ns, limit_ns == 0 ? kPollDelayNs : 1, kMs));
  });
}

}  // namespace sluice::hostile
