// SPDX-License-Identifier: Apache-2.0
//
// How long a device tries a request that nobody answers.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/hardware/probe.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

struct Attempt {
  uint8_t timeout;
  uint8_t retries;
  int rounds;
};
// At least 34 ms nominally, so that the scheduler of a busy host does not decide. In the order that RetryDials() needs.
constexpr Attempt kAttempts[] = {{12, 1, 10}, {12, 3, 3}, {14, 1, 3}, {14, 3, 2}, {15, 3, 2}};
constexpr absl::Duration kPatience = absl::Seconds(40);
// Times up to this factor apart are equal. Times that differ in fact are a factor of two apart.
constexpr double kEqual = 1.5;

double NominalNs(uint8_t timeout, uint8_t retries) {
  return 4096.0 * std::pow(2.0, timeout) * (retries + 1);
}

// The shortest of some rounds: what else the host does only adds, to each of them on a busy one.
absl::StatusOr<double> Measure(const Scene& scene, const TargetAddress& nobody,
                               const Attempt& attempt, uint32_t* vendor) {
  double best = 0;
  for (int i = 0; i < attempt.rounds; ++i) {
    auto sender =
        Sender::Create(scene.nic, {.timeout = attempt.timeout, .retry_count = attempt.retries});
    if (!sender.ok()) return sender.status();
    const absl::Time start = absl::Now();
    if (const int error = (*sender)->Post(nobody, {}); error != 0) {
      return base::ErrnoError(error, "posting a request", {.layer = "hardware"});
    }
    const auto wc = (*sender)->Await(kPatience);
    if (!wc.has_value() || wc->status != IBV_WC_RETRY_EXC_ERR) {
      return base::Error(absl::StatusCode::kUnavailable,
                         wc.has_value()
                             ? absl::StrCat("the request ended with ", StatusName(wc->status))
                             : std::string("the request did not end in 40 s"),
                         {.layer = "hardware", .operation = "retries"});
    }
    *vendor = wc->vendor_err;
    const double took = absl::ToDoubleNanoseconds(absl::Now() - start);
    const bool agrees = RoundsAgree(best, took, NominalNs(attempt.timeout, attempt.retries));
    if (best == 0 || took < best) best = took;
    if (agrees || took > 3e9) break;
  }
  return best;
}

absl::StatusOr<Answer> TimeToTheError(const Scene& scene) {
  const auto nobody = scene.Nobody();
  if (!nobody.ok()) return nobody.status();
  std::vector<RetryTime> times;
  uint32_t vendor = 0;
  Answer answer;
  for (const Attempt& attempt : kAttempts) {
    const auto took = Measure(scene, *nobody, attempt, &vendor);
    if (!took.ok()) return took.status();
    absl::StrAppendFormat(&answer.text, "%stimeout %d, %d retries: %.0f ms (nominal %.0f)",
                          times.empty() ? "" : "; ", attempt.timeout, attempt.retries, *took / 1e6,
                          NominalNs(attempt.timeout, attempt.retries) / 1e6);
    times.push_back({attempt.timeout, attempt.retries, *took});
  }
  absl::StrAppendFormat(&answer.text, "; vendor code 0x%02x", vendor);
  answer.dials = RetryDials(times);
  answer.as_softdc = answer.dials.empty() && vendor == 0x81;
  return answer;
}

absl::StatusOr<Answer> WrongKey(const Scene& scene) {
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  TargetAddress wrong = (*target)->address();
  wrong.dc_key ^= 1;
  const auto wc = (*sender)->Do(wrong, {});
  if (!wc.ok()) return wc.status();
  Answer answer{
      .as_softdc = wc->status == IBV_WC_RETRY_EXC_ERR,
      .text = absl::StrFormat("%s, vendor code 0x%02x", StatusName(wc->status), wc->vendor_err)};
  if (wc->status == IBV_WC_REM_ACCESS_ERR) {
    answer.dials = {{"unknowns", "wrong_dc_key", "REMOTE_ACCESS_ERROR"}};
  }
  return answer;
}

absl::StatusOr<Answer> OtherGid(const Scene& scene) {
  auto target = scene.target({.other_gid = true});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  const auto wc = (*sender)->Do((*target)->address(), {});
  if (!wc.ok()) return wc.status();
  Answer answer{.as_softdc = wc->status == IBV_WC_SUCCESS,
                .text = std::string(StatusName(wc->status))};
  // Lost: what the device says of a wrong key (wrong-dc-key), whichever that is.
  if (!answer.as_softdc) answer.dials = {{"unknowns", "foreign_gid", "LOST"}};
  return answer;
}

constexpr Probe kProbes[] = {
    {.name = "time-to-the-error",
     .facts = "12, 200, 201",
     .claim = "RETRY_EXC_ERR, vendor code 0x81, after 4.096 us * 2^timeout * (retries + 1)",
     .changes = "dead_peer_timeout below the device's own time is not met; the watchdog of send "
                "queues waits longer",
     .run = TimeToTheError},
    {.name = "wrong-dc-key",
     .facts = "13",
     .claim = "no answer: RETRY_EXC_ERR",
     .changes =
         "an access error may mean a peer that restarted: the connection is replaced either way",
     .run = WrongKey},
    {.name = "other-gid",
     .facts = "193",
     .claim = "a DCT answers under every GID of its port: SUCCESS",
     .changes = "none: Sluice connects at the GID of its queues only",
     .run = OtherGid},
};

}  // namespace

bool RoundsAgree(double best_ns, double took_ns, double nominal_ns) {
  if (best_ns <= 0 || std::abs(took_ns - best_ns) >= 0.03 * best_ns) return false;
  const double expected = std::max(1.0, std::round(best_ns / nominal_ns)) * nominal_ns;
  return std::abs(best_ns - expected) < 0.1 * expected;
}

std::vector<Dial> RetryDials(std::span<const RetryTime> times) {
  const auto [least, most] = std::minmax_element(
      times.begin(), times.end(),
      [](const RetryTime& a, const RetryTime& b) { return a.took_ns < b.took_ns; });
  // Whatever the timeout is: with 3 retries a device that counts them takes twice as long as with 1.
  if (most->took_ns < kEqual * least->took_ns) {
    return {{"retries", "total_retry_ns", absl::StrFormat("%.0f", least->took_ns)}};
  }
  const RetryTime& first = times.front();
  const RetryTime& last = times.back();
  const bool minimum_is_above_all = last.took_ns < kEqual * times[times.size() - 2].took_ns;
  const double factor =
      minimum_is_above_all
          ? 1.0
          : std::clamp(std::round(last.took_ns / NominalNs(last.timeout, last.retries)), 1.0, 16.0);
  // The minimum timeout shows where the shortest nominal time is below it.
  const double per_attempt = first.took_ns / factor / (first.retries + 1);
  const long shown = std::lround(std::log2(per_attempt / 4096.0));
  std::vector<Dial> dials;
  if (factor > 1) dials.push_back({"retries", "timeout_factor", absl::StrFormat("%.0f", factor)});
  if (shown > first.timeout) {
    dials.push_back({"retries", "min_timeout", absl::StrCat(std::min(shown, 31L))});
  }
  return dials;
}

std::span<const Probe> RetryProbes() { return kProbes; }

}  // namespace sluice::hardware
