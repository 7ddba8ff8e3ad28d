// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/host.h"

#include <arpa/inet.h>
#include <malloc.h>

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
      commands_(simulation, node, random_, [this] { OnActivity(Activity::kEvent); }) {
  const As as(simulation, node);
  device_ = *device::Device::Open("softdc0", {&Simulation::Verbs()});
}

Host::~Host() { *alive_ = false; }

std::string Host::AddressOf(uint32_t node) {
  char text[INET_ADDRSTRLEN];
  const in_addr address = Simulation::Address(node);
  return inet_ntop(AF_INET, &address, text, sizeof(text));
}

void Host::OnActivity(Activity what) {
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
