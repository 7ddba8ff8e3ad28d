// SPDX-License-Identifier: Apache-2.0
//
// Probe: one question to a device that only hardware can answer, with what softdc claims, and what another answer would change. A probe
// takes a bounded time, changes nothing on the host, and returns an answer, or an error: then it could not be tried.
//
// Threads       Constant tables and values.
#ifndef SLUICE_TOOLS_HARDWARE_PROBE_H_
#define SLUICE_TOOLS_HARDWARE_PROBE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/hardware_report.pb.h"
#include "tools/hardware/nic.h"
#include "tools/hardware/sender.h"
#include "tools/hardware/target.h"

namespace sluice::hardware {

// A setting of proto/softdc_config.proto, as text.
struct Dial {
  std::string group;
  std::string name;
  std::string value;
};

struct Answer {
  bool as_softdc = true;
  std::string text;
  std::vector<Dial> dials =
      {};  // that make softdc answer the same; empty although it differs: there is none
};

// Where a probe runs.
struct Scene {
  const Nic& nic;
  // Makes a target, here or at the peer.
  std::function<absl::StatusOr<std::unique_ptr<Target>>(const TargetOptions&)> target;

  // An address at which nobody is: the number of a target that has gone. A freed number may be given out again: what else a probe
  // needs is made before, and `living` is one of those targets. UNAVAILABLE: it has the number.
  absl::StatusOr<TargetAddress> Nobody(const Target* living = nullptr) const;
};

struct Probe {
  std::string_view name;
  std::string_view facts;  // numbers of docs/facts.md
  bool needs_dc = true;
  std::string_view claim;    // softdc's, with its default dials
  std::string_view changes;  // for Sluice, if the answer is another one
  absl::StatusOr<Answer> (*run)(const Scene& scene);
};

// The answer of each probe that needs DC, where there is none.
inline constexpr std::string_view kNoDc = "no DC";

// All probes, the most doubtful facts first.
std::vector<Probe> AllProbes();
std::span<const Probe> RetryProbes();
std::span<const Probe> StreamProbes();
std::span<const Probe> TargetProbes();
std::span<const Probe> OrderProbes();
std::span<const Probe> CapabilityProbes();

// Whether two rounds of time-to-the-error may end the measurement: within 3 % of each other, and the best within 10 % of a multiple
// of the nominal time (a greater least timeout, a factor). Others may both be late: a busy host keeps a thread waiting for tens of ms.
bool RoundsAgree(double best_ns, double took_ns, double nominal_ns);

// A request that nobody answered failed after `took_ns`, on a queue with these settings.
struct RetryTime {
  uint8_t timeout = 0;
  uint8_t retries = 0;
  double took_ns = 0;
};

// Returns the dials with which softdc takes these times; empty: its defaults. `times`: the shortest nominal time first, numbers of
// retries that differ by a factor of two, and at the end two that differ in the timeout alone. If these two took equally long, a
// minimum timeout and a factor can't be told apart: the minimum timeout accounts for both.
std::vector<Dial> RetryDials(std::span<const RetryTime> times);

// Runs the probes that `pattern` (part of a name; empty: all) selects, and tells of each as it ends, but for those whose answer is kNoDc.
HardwareReport RunProbes(const Scene& scene, const std::string& pattern,
                         const std::function<void(const HardwareRow&)>& tell);

}  // namespace sluice::hardware

#endif  // SLUICE_TOOLS_HARDWARE_PROBE_H_
