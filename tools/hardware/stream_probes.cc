// SPDX-License-Identifier: Apache-2.0
//
// Streams of a DCI: their number, the order of completions, and what an error does to the queue.
#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tools/hardware/probe.h"
#include "transport/base/error.h"

namespace sluice::hardware {
namespace {

absl::Status CannotTry(std::string_view why) {
  return base::Error(absl::StatusCode::kFailedPrecondition, why, {.layer = "hardware"});
}

SenderOptions WithStreams(const Scene& scene, uint8_t log_errored) {
  return {.streams = true,
          .log_concurrent = static_cast<uint8_t>(scene.nic.streams.max_log_num_concurent),
          .log_errored = std::min<uint8_t>(
              log_errored, static_cast<uint8_t>(scene.nic.streams.max_log_num_errored))};
}

absl::Status NeedsStreams(const Scene& scene) {
  return scene.nic.has_streams() ? absl::OkStatus() : CannotTry("the device has no streams");
}

absl::Status NeedsErroredStreams(const Scene& scene) {
  if (absl::Status status = NeedsStreams(scene); !status.ok()) return status;
  return scene.nic.streams.max_log_num_errored > 0
             ? absl::OkStatus()
             : CannotTry("the device allows no errored stream (max_log_num_errored is 0)");
}

absl::StatusOr<Answer> Caps(const Scene& scene) {
  const auto& caps = scene.nic.streams;
  if (!scene.nic.has_streams()) {
    return Answer{
        .as_softdc = false, .text = "no streams", .dials = {{"streams", "enabled", "false"}}};
  }
  Answer answer{.text = absl::StrCat("2^", caps.max_log_num_concurent, " streams, 2^",
                                     caps.max_log_num_errored, " may be in error")};
  if (caps.max_log_num_concurent != 6) {
    answer.dials.push_back({"streams", "max_log_concurrent",
                            absl::StrCat(std::min<int>(caps.max_log_num_concurent, 15))});
  }
  if (caps.max_log_num_errored != 4) {
    answer.dials.push_back(
        {"streams", "max_log_errored", absl::StrCat(std::min<int>(caps.max_log_num_errored, 15))});
  }
  answer.as_softdc = answer.dials.empty();
  return answer;
}

absl::StatusOr<Answer> CompletionOrder(const Scene& scene) {
  if (absl::Status status = NeedsStreams(scene); !status.ok()) return status;
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  SenderOptions options = WithStreams(scene, 1);
  options.timeout = 15;  // longer than this thread is kept from its CPU
  auto sender = Sender::Create(scene.nic, options);
  const auto nobody = scene.Nobody(target->get());
  for (const absl::Status& status : {nobody.status(), sender.status()}) {
    if (!status.ok()) return status;
  }
  // Once the way to the target is known, nothing but the order holds its completion up.
  const auto first = (*sender)->Do((*target)->address(), {.stream = 2});
  if (!first.ok()) return first.status();
  if ((*sender)->Post(*nobody, {.id = 1, .stream = 1}) != 0 ||
      (*sender)->Post((*target)->address(), {.id = 2, .stream = 2}) != 0) {
    return CannotTry("a request was refused");
  }
  std::vector<std::string> seen;
  uint64_t first_id = 0;
  for (int i = 0; i < 2; ++i) {
    const auto wc = (*sender)->Await();
    if (!wc.has_value()) break;
    if (i == 0) first_id = wc->wr_id;
    seen.push_back(
        absl::StrCat(wc->wr_id == 1 ? "dead target: " : "living target: ", StatusName(wc->status)));
  }
  Answer answer{.as_softdc = first_id == 1 && seen.size() == 2,
                .text = absl::StrJoin(seen, ", then ")};
  if (first_id == 2) answer.dials = {{"streams", "cqe_order", "PER_STREAM"}};
  return answer;
}

absl::StatusOr<Answer> UnsignalledFlush(const Scene& scene) {
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic);
  if (!sender.ok()) return sender.status();
  const TargetAddress& to = (*target)->address();
  (*sender)->Post(to, {.opcode = IBV_WR_RDMA_WRITE, .id = 1, .bad_key = true});
  (*sender)->Post(to, {.id = 2, .flags = 0});
  (*sender)->Post(to, {.id = 3, .flags = 0});
  (*sender)->Post(to, {.id = 4});
  std::vector<uint64_t> seen;
  while (seen.empty() || seen.back() != 4) {
    const auto wc = (*sender)->Await();
    if (!wc.has_value()) break;
    seen.push_back(wc->wr_id);
  }
  Answer answer{.text = absl::StrCat("requests that completed: ", absl::StrJoin(seen, ", "))};
  answer.as_softdc = seen == std::vector<uint64_t>{1, 2, 3, 4};
  if (seen == std::vector<uint64_t>{1, 4}) {
    answer.dials = {{"unknowns", "unsignalled_flush", "NO_COMPLETION"}};
  }
  return answer;
}

// One stream in error: what becomes of the queue and of another stream.
absl::StatusOr<Answer> AfterAccessError(const Scene& scene) {
  if (absl::Status status = NeedsErroredStreams(scene); !status.ok()) return status;
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 1));
  if (!sender.ok()) return sender.status();
  const TargetAddress& to = (*target)->address();
  const auto bad = (*sender)->Do(to, {.opcode = IBV_WR_RDMA_WRITE, .stream = 1, .bad_key = true});
  if (!bad.ok()) return bad.status();
  const auto at_once = (*sender)->State();
  absl::SleepFor(absl::Milliseconds(100));
  const auto later = (*sender)->State();
  if (!at_once.ok()) return at_once.status();
  if (!later.ok()) return later.status();
  const auto same = (*sender)->Do(to, {.stream = 1});
  const auto other = (*sender)->Do(to, {.stream = 2});
  if (!same.ok()) return same.status();
  if (!other.ok()) return other.status();
  return Answer{.as_softdc = bad->status == IBV_WC_REM_ACCESS_ERR && bad->vendor_err == 0x88 &&
                             *at_once == IBV_QPS_RTS && *later == IBV_QPS_RTS &&
                             same->status == IBV_WC_WR_FLUSH_ERR && other->status == IBV_WC_SUCCESS,
                .text = absl::StrFormat(
                    "%s, vendor code 0x%02x; state %s, after 100 ms %s; same stream %s, another %s",
                    StatusName(bad->status), bad->vendor_err, StateName(*at_once),
                    StateName(*later), StatusName(same->status), StatusName(other->status))};
}

// The budget is spent: when the state shows it.
absl::StatusOr<Answer> ErrorStateDelay(const Scene& scene) {
  if (absl::Status status = NeedsStreams(scene); !status.ok()) return status;
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 0));
  if (!sender.ok()) return sender.status();
  const absl::Time start = absl::Now();
  const auto bad = (*sender)->Do((*target)->address(),
                                 {.opcode = IBV_WR_RDMA_WRITE, .stream = 1, .bad_key = true});
  if (!bad.ok()) return bad.status();
  bool first = true;
  while (absl::Now() < start + absl::Seconds(3)) {
    const auto state = (*sender)->State();
    if (!state.ok()) return state.status();
    if (*state == IBV_QPS_ERR) {
      if (first) return Answer{.text = "ERR at the first query"};
      const absl::Duration took = absl::Now() - start;
      return Answer{.as_softdc = false,
                    .text = absl::StrFormat("ERR after %.1f ms", absl::ToDoubleMilliseconds(took)),
                    .dials = {{"streams", "error_state_delay_ns",
                               absl::StrCat(absl::ToInt64Nanoseconds(took))}}};
    }
    first = false;
  }
  return Answer{.as_softdc = false,
                .text = "not in ERR after 3 s",
                .dials = {{"streams", "error_state_delay_ns", "10000000000"}}};
}

absl::StatusOr<Answer> Reset(const Scene& scene) {
  if (absl::Status status = NeedsErroredStreams(scene); !status.ok()) return status;
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 1));
  if (!sender.ok()) return sender.status();
  const TargetAddress& to = (*target)->address();
  const auto bad = (*sender)->Do(to, {.opcode = IBV_WR_RDMA_WRITE, .stream = 1, .bad_key = true});
  if (!bad.ok()) return bad.status();
  const int error = scene.nic.api->dv_dci_stream_id_reset((*sender)->qp(), 1);
  if (error != 0) return Answer{.as_softdc = false, .text = "refused: " + ErrnoName(error)};
  const auto again = (*sender)->Do(to, {.stream = 1});
  if (!again.ok()) return again.status();
  return Answer{
      .as_softdc = again->status == IBV_WC_SUCCESS,
      .text = absl::StrCat("taken; the next request of the stream: ", StatusName(again->status))};
}

absl::StatusOr<Answer> ResetOfHealthy(const Scene& scene) {
  if (absl::Status status = NeedsErroredStreams(scene); !status.ok()) return status;
  auto target = scene.target({});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 1));
  if (!sender.ok()) return sender.status();
  const int error = scene.nic.api->dv_dci_stream_id_reset((*sender)->qp(), 3);
  const auto wc = (*sender)->Do((*target)->address(), {.stream = 3});
  if (!wc.ok()) return wc.status();
  return Answer{.as_softdc = (error == EINVAL || error == -EINVAL) && wc->status == IBV_WC_SUCCESS,
                .text = absl::StrCat(error == 0 ? "taken" : "refused: " + ErrnoName(error),
                                     "; the next request of the stream: ", StatusName(wc->status))};
}

absl::StatusOr<Answer> ForcedError(const Scene& scene) {
  if (absl::Status status = NeedsStreams(scene); !status.ok()) return status;
  auto waits = scene.target({.receives = 0});
  if (!waits.ok()) return waits.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 1));
  if (!sender.ok()) return sender.status();
  const uint32_t number = (*sender)->qp()->qp_num;
  for (uint16_t i = 0; i < 4; ++i) {
    (*sender)->Post((*waits)->address(), {.id = i, .stream = static_cast<uint16_t>(1 + i / 2)});
  }
  if (absl::Status status = (*sender)->ToError(); !status.ok()) return status;
  int flushed = 0;
  for (int i = 0; i < 4; ++i) {
    const auto wc = (*sender)->Await(absl::Seconds(2));
    if (wc.has_value() && wc->status == IBV_WC_WR_FLUSH_ERR) ++flushed;
  }
  if (absl::Status status = (*sender)->Recover(); !status.ok()) return status;
  if (absl::Status status = (*waits)->PostReceives(8); !status.ok()) return status;
  const auto wc = (*sender)->Do((*waits)->address(), {.stream = 2});
  if (!wc.ok()) return wc.status();
  const bool same = number == (*sender)->qp()->qp_num;
  return Answer{
      .as_softdc = flushed == 4 && wc->status == IBV_WC_SUCCESS && same,
      .text = absl::StrFormat("%d of 4 requests flushed; after RESET and back: %s, %s number",
                              flushed, StatusName(wc->status), same ? "same" : "another")};
}

absl::StatusOr<Answer> MoreLabelsThanStreams(const Scene& scene) {
  if (absl::Status status = NeedsErroredStreams(scene); !status.ok()) return status;
  const int labels = (1 << std::min<int>(scene.nic.streams.max_log_num_concurent, 10)) + 1;
  const auto places = static_cast<uint32_t>(labels);  // nobody takes the completions out
  auto target = scene.target({.receives = places, .cqe = 2 * places});
  if (!target.ok()) return target.status();
  auto sender = Sender::Create(scene.nic, WithStreams(scene, 4));
  const auto nobody = scene.Nobody(target->get());
  for (const absl::Status& status : {nobody.status(), sender.status()}) {
    if (!status.ok()) return status;
  }
  const auto dead = (*sender)->Do(*nobody, {.stream = 0});
  if (!dead.ok()) return dead.status();
  std::vector<int> failed;
  for (int label = 1; label < labels; ++label) {
    const auto wc = (*sender)->Do((*target)->address(), {.stream = static_cast<uint16_t>(label)});
    if (!wc.ok()) return wc.status();
    if (wc->status != IBV_WC_SUCCESS) failed.push_back(label);
  }
  return Answer{.as_softdc = failed.empty(),
                .text = failed.empty()
                            ? absl::StrCat("all of ", labels - 1, " living labels go on")
                            : absl::StrCat("also failed, labels: ", absl::StrJoin(failed, ", "))};
}

constexpr Probe kProbes[] = {
    {.name = "cqe-order",
     .facts = "9",
     .claim =
         "completions come in posting order across streams: a dead target holds up those behind it",
     .changes = "completions come earlier; Sluice takes them in either order",
     .run = CompletionOrder},
    {.name = "unsignalled-flush",
     .facts = "10, 204",
     .claim = "each flushed request completes, unsignalled ones too: 1, 2, 3, 4",
     .changes =
         "slots of flushed requests are given back with the next completion, and count as failed",
     .run = UnsignalledFlush},
    {.name = "stream-caps",
     .facts = "33",
     .claim = "2^6 streams, 2^4 may be in error",
     .changes =
         "fewer: more peers share a stream; none in error: one dead peer costs the reset of a DCI",
     .run = Caps},
    {.name = "state-after-access-error",
     .facts = "14, 17, 18",
     .claim = "REM_ACCESS_ERR, vendor code 0x88; the DCI stays in RTS, its stream is flushed, "
              "others go on",
     .changes = "every error costs the reset of a DCI, and the peers of its streams wait for that",
     .run = AfterAccessError},
    {.name = "error-state-delay",
     .facts = "18",
     .claim = "ERR is seen by the first query after the completion that spends the budget",
     .changes = "requests that are posted meanwhile are flushed, and sent again",
     .run = ErrorStateDelay},
    {.name = "stream-reset",
     .facts = "19",
     .claim = "an errored stream is reset and works again",
     .changes = "the DCI is reset instead of the stream",
     .run = Reset},
    {.name = "reset-of-a-healthy-stream",
     .facts = "19",
     .claim = "refused with EINVAL; the stream goes on",
     .changes = "none: Sluice resets errored streams only",
     .run = ResetOfHealthy},
    {.name = "forced-error",
     .facts = "17, 20, 43",
     .claim = "4 of 4 requests flushed; after RESET the DCI works under the same number",
     .changes = "the recovery of a DCI waits for completions that do not come, and ends by time",
     .run = ForcedError},
    {.name = "more-labels-than-streams",
     .facts = "17, 45",
     .claim = "each label is a stream of its own: one dead label of 65 disturbs no other",
     .changes =
         "labels share streams: healthy peers are flushed with a dead one, and are sent to again",
     .run = MoreLabelsThanStreams},
};

}  // namespace

std::span<const Probe> StreamProbes() { return kProbes; }

}  // namespace sluice::hardware
