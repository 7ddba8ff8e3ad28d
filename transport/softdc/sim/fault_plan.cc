// SPDX-License-Identifier: Apache-2.0
#include "transport/softdc/sim/fault_plan.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "transport/softdc/sim/random.h"

namespace sluice::softdc::sim {
namespace {

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

absl::Status CheckRate(const char* name, uint32_t per_million) {
  if (per_million <= kMillion) return absl::OkStatus();
  return Refuse(absl::StrCat(name, " is ", per_million, " parts per million: at most ", kMillion));
}

absl::Status CheckDelay(const char* name, uint32_t per_million, int64_t delay_ns) {
  if (delay_ns < 0) return Refuse(absl::StrCat(name, " delay is negative"));
  if (per_million != 0 && delay_ns == 0) {
    return Refuse(absl::StrCat(name, " are to be delayed, but by nothing: set delay_ns"));
  }
  return absl::OkStatus();
}

absl::Status CheckRule(const RequestRule& rule, uint32_t nodes) {
  if (rule.node && *rule.node >= nodes) {
    return Refuse(absl::StrCat("request rule for node ", *rule.node, ": there are ", nodes));
  }
  if (rule.peer && *rule.peer >= nodes) {
    return Refuse(absl::StrCat("request rule for peer ", *rule.peer, ": there are ", nodes));
  }
  if (rule.count == 0) return Refuse("request rule with count 0 never does anything");
  if (rule.status == IBV_WC_SUCCESS) return Refuse("request rule: IBV_WC_SUCCESS is no failure");
  if (rule.status > IBV_WC_GENERAL_ERR) {
    return Refuse(absl::StrCat("request rule: no RC or DC request ends with status ",
                               static_cast<int>(rule.status)));
  }
  if (rule.lands_late_ns < 0) return Refuse("request rule: lands_late_ns is negative");
  if (rule.lands_late_ns != 0 && rule.opcode != IBV_WR_RDMA_WRITE && !rule.carried_out) {
    return Refuse(
        "request rule: only an RDMA WRITE, or a SEND that is carried out, can land late; set "
        "opcode or "
        "carried_out to say so");
  }
  return absl::OkStatus();
}

absl::Status CheckTimed(const TimedFault& fault, uint32_t nodes) {
  const bool link = fault.what == Happening::kCutLink || fault.what == Happening::kHealLink;
  if (fault.at_ns < 0) return Refuse("timed fault before the start");
  if (fault.node >= nodes || (link && fault.peer >= nodes)) {
    return Refuse(absl::StrCat("timed fault at node ",
                               fault.node >= nodes ? fault.node : fault.peer, ": there are ",
                               nodes));
  }
  if (link && fault.node == fault.peer) return Refuse("a node has no link to itself to cut");
  return absl::OkStatus();
}

}  // namespace

absl::Status FaultPlan::Validate(uint32_t nodes) const {
  for (const absl::Status& status : {
           CheckRate("message loss", messages.loss_ppm),
           CheckRate("acknowledgement loss", messages.ack_loss_ppm),
           CheckRate("message delay", messages.delay_ppm),
           CheckDelay("messages", messages.delay_ppm, messages.delay_ns),
           CheckRate("CM loss", cm.loss_ppm),
           CheckRate("CM delay", cm.delay_ppm),
           CheckRate("CM duplication", cm.duplicate_ppm),
           CheckRate("CM reject", cm.reject_ppm),
           CheckDelay("CM messages", cm.delay_ppm, cm.delay_ns),
       }) {
    if (!status.ok()) return status;
  }
  for (const TimedFault& fault : timed) {
    if (absl::Status status = CheckTimed(fault, nodes); !status.ok()) return status;
  }
  for (const RequestRule& rule : requests) {
    if (absl::Status status = CheckRule(rule, nodes); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace sluice::softdc::sim
