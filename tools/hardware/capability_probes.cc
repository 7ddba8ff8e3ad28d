// SPDX-License-Identifier: Apache-2.0
//
// What a device reports of itself, and what it lets this user make.
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/hardware/probe.h"
#include "tools/hardware/signature_trial.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

absl::StatusOr<Answer> ReservedNumbers(const Scene& scene) {
  const std::string user = geteuid() == 0 ? " (asked as root)" : " (asked as an ordinary user)";
  uint32_t number = 0;
  int error = scene.nic.api->dv_reserved_qpn_alloc(scene.nic.context.get(), &number);
  if (error == 0) error = scene.nic.api->dv_reserved_qpn_dealloc(scene.nic.context.get(), number);
  if (error == 0) return Answer{.text = "reserved and given back" + user};
  return Answer{.as_softdc = false,
                .text = "refused: " + ErrnoName(error) + user,
                .dials = {{"features", "reserved_qpns", "false"}}};
}

absl::StatusOr<Answer> Ece(const Scene& scene) {
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  ibv_ece ece{};
  const int error = scene.nic.api->query_ece((*sender)->qp(), &ece);
  if (error != 0 || ece.vendor_id == 0 || ece.options == 0) {
    return Answer{.as_softdc = false,
                  .text = error != 0 ? "refused: " + ErrnoName(error) : "no options",
                  .dials = {{"features", "ece", "false"}}};
  }
  Answer answer{.as_softdc = ece.options == 0x30000003,
                .text = absl::StrFormat("options 0x%08x", ece.options)};
  if (!answer.as_softdc) {
    answer.dials = {{"features", "ece_options", absl::StrFormat("0x%x", ece.options)}};
  }
  return answer;
}

absl::StatusOr<Answer> AhMapping(const Scene& scene) {
  auto target = scene.target({});
  auto sender = Sender::Create(scene.nic);
  if (!target.ok()) return target.status();
  if (!sender.ok()) return sender.status();
  const auto ah = (*sender)->AhTo((*target)->address());
  if (!ah.ok()) return ah.status();
  const int error = scene.nic.api->dv_map_ah_to_qp(*ah, (*sender)->qp()->qp_num);
  if (error == 0) return Answer{.text = "mapped"};
  return Answer{.as_softdc = false,
                .text = "refused: " + ErrnoName(error),
                .dials = {{"features", "ah_mapping", "false"}}};
}

absl::StatusOr<Answer> Atomics(const Scene& scene) {
  if (scene.nic.attributes.atomic_cap != IBV_ATOMIC_NONE) return Answer{.text = "reported"};
  return Answer{.as_softdc = false, .text = "none", .dials = {{"features", "atomics", "false"}}};
}

absl::StatusOr<Answer> Port(const Scene& scene) {
  const Nic& nic = scene.nic;
  Answer answer{.text = absl::StrCat(nic.infiniband() ? "InfiniBand" : "Ethernet", ", active MTU ",
                                     MtuBytes(nic.port.active_mtu))};
  if (nic.infiniband()) {
    answer.dials.push_back({"port", "link_layer", "INFINIBAND"});
    answer.dials.push_back({"port", "lid", absl::StrCat(std::clamp<int>(nic.port.lid, 1, 0xbfff))});
  }
  if (nic.port.active_mtu != IBV_MTU_4096) {
    answer.dials.push_back({"port", "active_mtu", absl::StrCat(MtuBytes(nic.port.active_mtu))});
  }
  const auto is_v1 = [](const Gid& gid) { return gid.roce_v1; };
  if (std::any_of(nic.gids.begin(), nic.gids.end(), is_v1)) {
    const bool first = nic.gids.front().roce_v1;
    answer.dials.push_back({"port", "roce_v1", first ? "V1_FIRST" : "V1_LAST"});
    absl::StrAppend(&answer.text, first ? ", RoCE v1 entries first" : ", RoCE v1 entries last");
  }
  answer.as_softdc = answer.dials.empty();
  return answer;
}

absl::StatusOr<Answer> MtuAboveActive(const Scene& scene) {
  if (scene.nic.port.active_mtu == IBV_MTU_4096) {
    return base::Error(absl::StatusCode::kFailedPrecondition,
                       "the active MTU is 4096, the largest that there is", {.layer = "hardware"});
  }
  const auto sender =
      Sender::Create(scene.nic, {.mtu_bytes = 2 * MtuBytes(scene.nic.port.active_mtu)});
  return Answer{.as_softdc = absl::IsInvalidArgument(sender.status()),
                .text = sender.ok() ? "taken" : std::string(sender.status().message())};
}

// Largest inline size that a DCI is made with, of some.
uint32_t MaxInline(const Nic& nic) {
  auto cq = verbs::CreateCq(*nic.api, nic.context.get(), 16, nullptr);
  if (!cq.ok()) return 0;
  for (const uint32_t bytes :
       {512u, 448u, 384u, 320u, 256u, 220u, 192u, 128u, 96u, 64u, 48u, 32u, 16u}) {
    if (verbs::CreateDci(*nic.api, nic.context.get(), nic.pd.get(), cq->get(),
                         {.send_depth = 8, .max_inline_bytes = bytes})
            .ok()) {
      return bytes;
    }
  }
  return 0;
}

absl::StatusOr<Answer> Limits(const Scene& scene) {
  const ibv_device_attr& attr = scene.nic.attributes;
  struct Limit {
    const char* name;
    uint64_t value, low, high, claim;
  };
  const Limit limits[] = {
      {"max_send_wr", static_cast<uint64_t>(attr.max_qp_wr), 1, 32768, 32768},
      {"max_sge", static_cast<uint64_t>(attr.max_sge), 1, 30, 30},
      {"max_inline_bytes", scene.nic.has_dc() ? MaxInline(scene.nic) : 512, 0, 512, 512},
      {"max_cqe", static_cast<uint64_t>(attr.max_cqe), 1, 4194303, 4194303},
      {"max_srq_wr", static_cast<uint64_t>(attr.max_srq_wr), 16, 65536, 32767},
      {"max_rd_atomic", static_cast<uint64_t>(attr.max_qp_rd_atom), 1, 128, 16},
      {"max_message_bytes", scene.nic.port.max_msg_sz, 4096, 1u << 30, 1u << 30},
  };
  Answer answer;
  std::vector<std::string> texts;
  for (const Limit& limit : limits) {
    texts.push_back(absl::StrCat(limit.name, " ", limit.value));
    const uint64_t value = std::clamp(limit.value, limit.low, limit.high);
    if (value != limit.claim) answer.dials.push_back({"limits", limit.name, absl::StrCat(value)});
  }
  answer.text = absl::StrJoin(texts, ", ");
  answer.as_softdc = answer.dials.empty();
  return answer;
}

absl::StatusOr<Answer> WrongCrc(const Scene& scene) {
  const bool can = (scene.nic.mlx5.comp_mask & MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD) != 0 &&
                   scene.nic.mlx5.sig_caps.block_prot != 0;
  if (!can) {
    return Answer{.as_softdc = false,
                  .text = "the device reports no signatures",
                  .dials = {{"features", "signature", "false"},
                            {"features", "signature_pipelining", "false"}}};
  }
  return TryWrongCrc(scene.nic);
}

absl::StatusOr<Answer> Pipelining(const Scene& scene) {
  auto cq = verbs::CreateCq(*scene.nic.api, scene.nic.context.get(), 16, nullptr);
  if (!cq.ok()) return cq.status();
  const auto rc = verbs::CreateRc(*scene.nic.api, scene.nic.context.get(), scene.nic.pd.get(),
                                  cq->get(), cq->get(), {.mkeys = true, .pipelining = true});
  if (rc.ok()) return Answer{.text = "a queue pair was made"};
  return Answer{.as_softdc = false,
                .text = std::string(rc.status().message()),
                .dials = {{"features", "signature_pipelining", "false"}}};
}

absl::StatusOr<Answer> Dc(const Scene& scene) {
  if (scene.nic.has_dc()) return Answer{.text = "made"};
  return Answer{
      .as_softdc = false, .text = scene.nic.no_dc, .dials = {{"features", "dc", "false"}}};
}

constexpr Probe kProbes[] = {
    {.name = "dc",
     .facts = "1",
     .needs_dc = false,
     .claim = "DCIs and DCTs are made",
     .changes = "peers need RC queue pairs of their own (docs/devices.md); no probe of DC is tried",
     .run = Dc},
    {.name = "reserved-numbers",
     .facts = "4, 60",
     .claim = "any user may reserve a number and give it back",
     .changes = "a dummy queue pair for each connection instead of a number",
     .run = ReservedNumbers},
    {.name = "wrong-crc",
     .facts = "130, 140, 141",
     .needs_dc = false,
     .claim = "the transfer succeeds; the wrong block is reported once, with its offset",
     .changes = "the CPU checks blocks instead of the device (SignedQueueOptions::offload)",
     .run = WrongCrc},
    {.name = "signature-pipelining",
     .facts = "142, 143",
     .needs_dc = false,
     .claim = "an RC queue pair stops at a wrong signature (SIG_PIPELINING)",
     .changes = "a reply waits for the check of its data",
     .run = Pipelining},
    {.name = "ece",
     .facts = "76, 77",
     .claim = "options 0x30000003",
     .changes = "connections negotiate fewer options, or none",
     .run = Ece},
    {.name = "ah-mapping",
     .facts = "79",
     .claim = "an address handle is mapped to a DCI",
     .changes = "none: the mapping is a hint",
     .run = AhMapping},
    {.name = "atomics",
     .facts = "91",
     .needs_dc = false,
     .claim = "the device has atomics",
     .changes = "none: Sluice uses no atomics of the device",
     .run = Atomics},
    {.name = "port",
     .facts = "168, 192, 203",
     .needs_dc = false,
     .claim = "Ethernet, active MTU 4096, RoCE v2 entries only",
     .changes = "packets are smaller; of equal GIDs the one of RoCE v2 is taken",
     .run = Port},
    {.name = "mtu-above-active",
     .facts = "203",
     .claim = "EINVAL",
     .changes = "a wrong path MTU shows as lost packets instead of an error",
     .run = MtuAboveActive},
    {.name = "limits",
     .facts = "31, 54",
     .needs_dc = false,
     .claim =
         "max_send_wr 32768, max_sge 30, max_inline_bytes 512, max_cqe 4194303, max_srq_wr 32767, "
         "max_rd_atomic 16, max_message_bytes 1073741824; what exceeds softdc's range is no "
         "difference",
     .changes = "options that need more fail, and name the option",
     .run = Limits},
};

}  // namespace

std::span<const Probe> CapabilityProbes() { return kProbes; }

}  // namespace sluice::hardware
