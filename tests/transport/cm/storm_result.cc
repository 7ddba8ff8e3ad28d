// SPDX-License-Identifier: Apache-2.0
#include "tests/transport/cm/storm_result.h"

#include <utility>

namespace sluice::cm {

void Add(const StormResult& one, StormResult* sum) {
  sum->violations.insert(sum->violations.end(), one.violations.begin(), one.violations.end());
  sum->connects += one.connects;
  sum->up += one.up;
  sum->given_up += one.given_up;
  for (const auto& [code, count] : one.refused) sum->refused[code] += count;
  sum->accepted += one.accepted;
  sum->cm.exhausted += one.cm.exhausted;
  sum->cm.tries += one.cm.tries;
  sum->cm.retries += one.cm.retries;
  sum->cm.throttled += one.cm.throttled;
  sum->cm.stale_rejects += one.cm.stale_rejects;
  sum->cm.timeouts += one.cm.timeouts;
  sum->cm.half_open_reaped += one.cm.half_open_reaped;
  sum->cm.refused_requests += one.cm.refused_requests;
  sum->cm.unanswered_closes += one.cm.unanswered_closes;
  sum->cm.ignored_events += one.cm.ignored_events;
  sum->killed += one.killed;
  sum->died += one.died;
  sum->stale += one.stale;
  sum->numbers_taken += one.numbers_taken;
  sum->numbers_reserved += one.numbers_reserved;
  sum->numbers_taken_again += one.numbers_taken_again;
  sum->numbers_reissued += one.numbers_reissued;
  sum->mapped += one.mapped;
  sum->unmapped += one.unmapped;
  sum->agreed_ece += one.agreed_ece;
  sum->virtual_ns += one.virtual_ns;
}

std::string ToString(const StormResult& r) {
  std::string text = std::to_string(r.connects) + " connects: " + std::to_string(r.up) + " up, " +
                     std::to_string(r.given_up) + " given up";
  for (const auto& [code, count] : r.refused) {
    text += ", " + std::to_string(count) + " " + absl::StatusCodeToString(code);
  }
  const std::pair<const char*, uint64_t> rest[] = {
      {"accepted", r.accepted},
      {"tries", r.cm.tries},
      {"retries", r.cm.retries},
      {"throttled", r.cm.throttled},
      {"step deadlines", r.cm.timeouts},
      {"half-open reaped", r.cm.half_open_reaped},
      {"closes unanswered", r.cm.unanswered_closes},
      {"programs killed", r.killed},
      {"connects died", r.died},
      {"stale", r.stale},
      {"numbers", r.numbers_taken},
      {"of them reserved", r.numbers_reserved},
      {"taken again", r.numbers_taken_again},
      {"reissued", r.numbers_reissued},
      {"handles mapped", r.mapped},
      {"not mapped", r.unmapped},
      {"with ECE", r.agreed_ece},
      {"virtual seconds", static_cast<uint64_t>(r.virtual_ns / 1'000'000'000)}};
  for (const auto& [name, count] : rest) {
    text += "; " + std::to_string(count) + " " + name;
  }
  return text;
}

}  // namespace sluice::cm
