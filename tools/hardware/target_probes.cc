// SPDX-License-Identifier: Apache-2.0
//
// What a target does with requests that do not fit: too long, of another path MTU, with no room for the completion.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/hardware/probe.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

absl::StatusOr<Answer> TooLong(const Scene& scene) {
  auto target = scene.target({.receives = 1, .receive_bytes = 16});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  const auto wc = (*sender)->Do((*target)->address(), {.bytes = 17});
  if (!wc.ok()) return wc.status();
  const auto receipt = (*target)->AwaitReceive(absl::Milliseconds(500));
  if (!receipt.ok()) return receipt.status();
  Answer answer{.text = absl::StrFormat(
                    "sender: %s, vendor code 0x%02x; target: %s", StatusName(wc->status),
                    wc->vendor_err,
                    receipt->has_value() ? StatusName((*receipt)->status) : "no completion")};
  const bool sender_as_softdc = wc->status == IBV_WC_REM_INV_REQ_ERR && wc->vendor_err == 0x8a;
  answer.as_softdc =
      sender_as_softdc && receipt->has_value() && (*receipt)->status == IBV_WC_LOC_LEN_ERR;
  if (sender_as_softdc && !receipt->has_value()) {
    answer.dials = {{"unknowns", "too_long_at_target", "SILENT"}};
  }
  return answer;
}

absl::StatusOr<Answer> UnlikeMtus(const Scene& scene) {
  const uint32_t larger = std::min<uint32_t>(MtuBytes(scene.nic.port.active_mtu), 1024);
  if (larger <= 256) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "the port's active MTU is 256",
                       {.layer = "hardware"});
  }
  auto target = scene.target({.mtu_bytes = larger / 2});
  if (!target.ok()) return target.status();
  const auto with = [&](const Request& request) -> absl::StatusOr<ibv_wc> {
    auto sender = Sender::Create(scene.nic, {.mtu_bytes = larger});
    if (!sender.ok()) return sender.status();
    return (*sender)->Do((*target)->address(), request);
  };
  const auto one = with({.bytes = larger / 2});
  const auto two = with({.bytes = 2 * larger});
  const auto read = with({.opcode = IBV_WR_RDMA_READ, .bytes = 2 * larger});
  for (const absl::Status& status : {one.status(), two.status(), read.status()}) {
    if (!status.ok()) return status;
  }
  return Answer{.as_softdc = one->status == IBV_WC_SUCCESS &&
                             two->status == IBV_WC_REM_INV_REQ_ERR &&
                             read->status == IBV_WC_REM_INV_REQ_ERR,
                .text = absl::StrFormat("one packet: %s; a SEND of two: %s; a READ of two: %s",
                                        StatusName(one->status), StatusName(two->status),
                                        StatusName(read->status))};
}

absl::StatusOr<Answer> FenceScope(const Scene& scene) {
  if (!scene.nic.has_streams()) {
    return base::Error(absl::StatusCode::kFailedPrecondition, "the device has no streams",
                       {.layer = "hardware"});
  }
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(
      scene.nic, {.streams = true,
                  .log_concurrent = static_cast<uint8_t>(scene.nic.streams.max_log_num_concurent),
                  .timeout = 17});  // a READ to nobody lasts for a second
  const auto nobody = scene.Nobody(target->get());
  for (const absl::Status& status : {nobody.status(), sender.status()}) {
    if (!status.ok()) return status;
  }
  const TargetAddress& to = (*target)->address();
  const auto known = (*sender)->Do(to, {.bytes = 8, .stream = 2});
  if (!known.ok()) return known.status();
  if (const auto receipt = (*target)->AwaitReceive(kLongWait); !receipt.ok())
    return receipt.status();
  constexpr uint64_t kRead = 1;
  (*sender)->Post(*nobody, {.opcode = IBV_WR_RDMA_READ, .id = kRead, .stream = 1});
  (*sender)->Post(to, {.bytes = 16, .stream = 2, .flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE});
  (*sender)->Post(to, {.bytes = 24, .stream = 3});
  const auto receipt = (*target)->AwaitReceive(kLongWait);
  if (!receipt.ok()) return receipt.status();
  bool read_ended = false;
  while (const auto wc = (*sender)->Await(absl::ZeroDuration())) {
    read_ended = read_ended || wc->wr_id == kRead;
  }
  if (!receipt->has_value() || read_ended) {
    return Answer{.as_softdc = false,
                  .text = "the fenced request waits, and so do requests behind it"};
  }
  const bool fenced = (*receipt)->bytes == 16;
  Answer answer{.as_softdc = !fenced,
                .text = fenced ? "the fenced request passes a READ of another stream"
                               : "the fenced request waits"};
  if (fenced) answer.dials = {{"unknowns", "fence_scope", "STREAM"}};
  return answer;
}

absl::StatusOr<Answer> FullReceiveCq(const Scene& scene) {
  auto target = scene.target({.receives = 2048, .receive_bytes = 64, .cqe = 4});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  const uint32_t messages = std::min<uint32_t>(2048, 4 * (*target)->address().cqe + 64);
  for (uint32_t i = 0; i < messages; ++i) {
    if ((*sender)->Post((*target)->address(), {.id = i}) != 0) break;
    const auto wc = (*sender)->Await(absl::Seconds(2));
    if (!wc.has_value()) {
      return Answer{.as_softdc = false,
                    .text = absl::StrCat("message ", i, " waits"),
                    .dials = {{"unknowns", "full_receive_cq", "WAIT"}}};
    }
    if (wc->status != IBV_WC_SUCCESS) {
      return Answer{.as_softdc = false,
                    .text = absl::StrCat("message ", i, " fails with ", StatusName(wc->status))};
    }
  }
  return Answer{.text = absl::StrCat("all of ", messages, " messages succeed")};
}

constexpr Probe kProbes[] = {
    {.name = "unlike-mtus",
     .facts = "202",
     .claim = "one packet: SUCCESS; a SEND of two: REM_INV_REQ_ERR; a READ of two: REM_INV_REQ_ERR",
     .changes = "none: Sluice uses one path MTU on all sides",
     .run = UnlikeMtus},
    {.name = "too-long",
     .facts = "15",
     .claim = "sender: REM_INV_REQ_ERR, vendor code 0x8a; target: LOC_LEN_ERR",
     .changes = "without a completion at the target the receive is posted still: none is lost",
     .run = TooLong},
    {.name = "fence-scope",
     .facts = "46",
     .claim = "a fenced request waits for the READs of all streams",
     .changes = "none: Sluice fences no request of a DCI",
     .run = FenceScope},
    {.name = "full-receive-cq",
     .facts = "71, 166",
     .claim = "completions without room are lost, and their senders succeed",
     .changes = "none: Sluice sizes its CQs so that they do not overrun",
     .run = FullReceiveCq},
};

}  // namespace

std::span<const Probe> TargetProbes() { return kProbes; }

}  // namespace sluice::hardware
