// SPDX-License-Identifier: Apache-2.0
//
// Payload in order: what the device promises, and what a reader of the last word sees while the memory is busy.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/hardware/probe.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

constexpr absl::Duration kWatch = absl::Milliseconds(700);

// A DCT of this host that is ready, so that the device can be asked about it.
absl::StatusOr<verbs::DataOrder> Promised(const Nic& nic) {
  auto cq = verbs::CreateCq(*nic.api, nic.context.get(), 16, nullptr);
  auto srq = verbs::CreateSrq(*nic.api, nic.pd.get(), 16);
  if (!cq.ok()) return cq.status();
  if (!srq.ok()) return srq.status();
  auto dct =
      verbs::CreateDct(*nic.api, nic.context.get(), nic.pd.get(), cq->get(), srq->get(), kDcKey);
  if (!dct.ok()) return dct.status();
  const absl::Status status =
      verbs::ActivateDct(*nic.api, dct->get(), nic.Path(), IBV_ACCESS_REMOTE_WRITE);
  if (!status.ok()) return status;
  return verbs::QueryDataOrder(*nic.api, dct->get(), IBV_WR_RDMA_WRITE);
}

std::vector<Dial> OrderDial(verbs::DataOrder order) {
  if (order == verbs::DataOrder::kWholeMessage) return {};
  return {{"features", "in_order", order == verbs::DataOrder::kNone ? "NONE" : "BLOCKS_128"}};
}

absl::StatusOr<Answer> Query(const Scene& scene) {
  const auto order = Promised(scene.nic);
  if (!order.ok()) return order.status();
  return Answer{.as_softdc = *order == verbs::DataOrder::kWholeMessage,
                .text = std::string(verbs::Name(*order)),
                .dials = OrderDial(*order)};
}

absl::StatusOr<Answer> LastWord(const Scene& scene, uint32_t bytes) {
  const auto promised = Promised(scene.nic);
  auto target = scene.target({});
  auto sender = Sender::Create(scene.nic);
  for (const absl::Status& status : {promised.status(), target.status(), sender.status()}) {
    if (!status.ok()) return status;
  }
  if (absl::Status status = (*target)->BeginWatch(bytes); !status.ok()) return status;
  const absl::Time end = absl::Now() + kWatch;
  absl::Status failed;
  for (uint64_t number = 1; absl::Now() < end && failed.ok(); ++number) {
    auto* const words = reinterpret_cast<uint64_t*>((*sender)->memory());
    for (uint32_t i = 0; i < bytes / 8; ++i) words[i] = number;
    const auto wc =
        (*sender)->Do((*target)->address(), {.opcode = IBV_WR_RDMA_WRITE, .bytes = bytes});
    if (!wc.ok()) {
      failed = wc.status();
    } else if (wc->status != IBV_WC_SUCCESS) {
      failed = base::Error(absl::StatusCode::kUnavailable,
                           absl::StrCat("a WRITE ended with ", StatusName(wc->status)),
                           {.layer = "hardware", .operation = "watch"});
    }
  }
  const auto count = (*target)->EndWatch();
  if (!failed.ok()) return failed;
  if (!count.ok()) return count.status();
  if (count->seen == 0) {
    return base::Error(absl::StatusCode::kUnavailable, "the watcher saw no message",
                       {.layer = "hardware",
                        .operation = "watch",
                        .cause = "no WRITE reached the memory, or the watching thread got no CPU",
                        .remedy = "run the probe again on an idle host"});
  }
  Answer answer{
      .text = absl::StrFormat("%d messages were seen, %d of them torn", count->seen, count->torn)};
  // Without a promise nothing is broken by it.
  verbs::DataOrder kept = verbs::DataOrder::kWholeMessage;
  if (count->torn > 0) kept = verbs::DataOrder::kBlocks128;
  if (count->torn_blocks > 0) kept = verbs::DataOrder::kNone;
  if (*promised > kept) {
    answer.as_softdc = false;
    answer.dials = OrderDial(kept);
    absl::StrAppend(&answer.text, "; the device promises ", std::string(verbs::Name(*promised)));
  }
  return answer;
}

absl::StatusOr<Answer> LastWord264(const Scene& scene) { return LastWord(scene, 264); }
absl::StatusOr<Answer> LastWord4096(const Scene& scene) { return LastWord(scene, 4096); }

constexpr std::string_view kLastWordClaim =
    "a reader that sees the last word of a message sees all of it that the device promises in "
    "order";
constexpr std::string_view kLastWordChanges =
    "lanes read bytes that have not landed: switch them off (lanes: off) on this host, and report "
    "it";

constexpr Probe kProbes[] = {
    {.name = "in-order-query",
     .facts = "25",
     .claim = "whole messages in order",
     .changes = "no promise: busy peers get no lanes, messages go through receive queues",
     .run = Query},
    {.name = "last-word-264",
     .facts = "80, 154",
     .claim = kLastWordClaim,
     .changes = kLastWordChanges,
     .run = LastWord264},
    {.name = "last-word-4096",
     .facts = "80, 154",
     .claim = kLastWordClaim,
     .changes = kLastWordChanges,
     .run = LastWord4096},
};

}  // namespace

std::span<const Probe> OrderProbes() { return kProbes; }

}  // namespace sluice::hardware
