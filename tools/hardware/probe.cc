// SPDX-License-Identifier: Apache-2.0
#include "tools/hardware/probe.h"

#include <sys/utsname.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tools/hardware/dial_file.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

HardwareRow RunOne(const Probe& probe, const Scene& scene, DialFile* dials) {
  HardwareRow row;
  row.set_probe(std::string(probe.name));
  row.set_facts(std::string(probe.facts));
  row.set_claim(std::string(probe.claim));
  if (probe.needs_dc && !scene.nic.has_dc()) {
    row.set_answer(std::string(kNoDc));
    return row;
  }
  const absl::Time start = absl::Now();
  const absl::StatusOr<Answer> answer = probe.run(scene);
  row.set_seconds(absl::ToDoubleSeconds(absl::Now() - start));
  if (!answer.ok()) {
    row.set_answer(std::string(answer.status().message()));
    return row;
  }
  row.set_answer(answer->text);
  row.set_verdict(answer->as_softdc ? HARDWARE_AS_SOFTDC : HARDWARE_DIFFERS);
  if (answer->as_softdc) return row;
  row.set_changes(std::string(probe.changes));
  DialFile own;
  for (const Dial& dial : answer->dials) {
    own.Set(dial);
    dials->Set(dial);
  }
  row.set_dial(own.Text(" "));
  return row;
}

}  // namespace

absl::StatusOr<TargetAddress> Scene::Nobody(const Target* living) const {
  auto gone = target({.receives = 0});
  if (!gone.ok()) return gone.status();
  if (living != nullptr && living->address().dctn == (*gone)->address().dctn) {
    return base::Error(absl::StatusCode::kUnavailable,
                       absl::StrCat("two DCTs have the number ", living->address().dctn),
                       {.layer = "hardware",
                        .operation = "target",
                        .cause = "the device gave out the number of a DCT that lives",
                        .remedy = "report it with the firmware version of the device"});
  }
  return (*gone)->address();
}

std::vector<Probe> AllProbes() {
  std::vector<Probe> all;
  for (const auto& some :
       {RetryProbes(), StreamProbes(), OrderProbes(), TargetProbes(), CapabilityProbes()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

HardwareReport RunProbes(const Scene& scene, const std::string& pattern,
                         const std::function<void(const HardwareRow&)>& tell) {
  HardwareReport report;
  report.set_schema_version(1);
  report.set_device(absl::StrCat(scene.nic.name, " (", scene.nic.api->name, ")"));
  report.set_firmware(scene.nic.attributes.fw_ver);
  report.set_vendor_id(scene.nic.attributes.vendor_id);
  report.set_vendor_part_id(scene.nic.attributes.vendor_part_id);
  utsname system{};
  if (uname(&system) == 0) {
    report.set_system(absl::StrCat(system.sysname, " ", system.release, " ", system.machine));
  }
  report.set_user(geteuid() == 0 ? "root" : "an ordinary user");
  DialFile dials;
  for (const Probe& probe : AllProbes()) {
    if (!absl::StrContains(std::string(probe.name), pattern)) continue;
    *report.add_rows() = RunOne(probe, scene, &dials);
    // The probe "dc" has said it for all of them.
    if (report.rows().rbegin()->answer() != kNoDc) tell(*report.rows().rbegin());
  }
  report.set_dials(dials.Text("\n"));
  return report;
}

}  // namespace sluice::hardware
