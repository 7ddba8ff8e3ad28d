// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/loop/out_of_descriptors.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>

#include "transport/softdc/loop/loop.h"

namespace sluice::softdc {
namespace {

constexpr int64_t kReportAgainNs = 60'000'000'000;

bool IsDue(std::atomic<int64_t>* next_ns) {
  const int64_t now_ns = Loop::NowNs();
  int64_t next = next_ns->load();
  return now_ns >= next && next_ns->compare_exchange_strong(next, now_ns + kReportAgainNs);
}

}  // namespace

bool IsOutOfDescriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void ReportOutOfDescriptors() {
  static std::atomic<int64_t> next_ns{0};
  if (!IsDue(&next_ns)) return;
  std::fprintf(stderr,
               "softdc: this process has no file descriptors left, so it reaches no further "
               "processes, and further processes do not reach it; raise the limit (ulimit -n). "
               "Established links continue.\n");
}

void ReportTurnedAway(pid_t pid) {
  static std::atomic<int64_t> next_ns{0};
  if (!IsDue(&next_ns)) return;
  std::fprintf(stderr,
               "softdc: process %d has turned this process away: it has no file descriptors left; "
               "raise its limit (ulimit -n)\n",
               static_cast<int>(pid));
}

}  // namespace sluice::softdc
