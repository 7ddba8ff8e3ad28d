// SPDX-License-Identifier: Apache-2.0
//
// Sleep beside lanes that this side reads: what is asked of their senders, and what may be believed of the answers
// (docs/decisions/0026).
#include <algorithm>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using lane::Event;
using lane::Mode;
using lane::State;

// Until all lanes are quiet the process only naps: shortly at first, since senders answer at once if they can.
constexpr int64_t kShortNapNs = 50'000;
constexpr int64_t kLongNapNs = 1'000'000;
constexpr int64_t kShortNapsNs = 20'000'000;

absl::Status LaneKept(const Peer& peer, State state) {
  return base::Error(
      absl::StatusCode::kUnavailable,
      state == State::kClosing ? "the peer does not stop using its lane"
                               : "the peer does not announce what it writes into its lane",
      {.layer = "endpoint",
       .peer = peer.address(),
       .operation = "receive",
       .cause = "the peer has not answered, or has not written the messages that it reported",
       .remedy = "reconnect; raise keepalive_ns if the peer may be busy that long"});
}

}  // namespace

void EndpointImpl::AskOf(InLane* lane, Mode mode) {
  lane->ask.mode = mode;
  ++lane->ask.turn;
  lane->written.reset();
  LanesOf(lane->peer).ask_due = true;
  OweLaneWords(lane->peer);
  watch_.Join(lane, *lane->reader);
  lane->rounds = 0;
  if (mode != Mode::kSilent && !lane_timer_.armed()) StartLaneRound();
}

void EndpointImpl::StartLaneRound() {
  timers_.Schedule(&lane_timer_, clock_.NowNs() + AnswerRoundNs());
}

void EndpointImpl::OnLaneTime(base::Timer*, void* context) {
  static_cast<EndpointImpl*>(context)->LookForAnswers();
}

// Disconnects peers that do not do what they were asked: such a peer keeps this process from sleeping, and the memory of its
// lane from others.
void EndpointImpl::LookForAnswers() {
  if (closed_) return;
  const bool heard_all = ReceiveAll();  // this process may have been stopped for long
  bool open = false;
  watch_.ForEach([&](lane::Watch::Seat* seat) {
    auto* lane = static_cast<InLane*>(seat);
    if (lane->state != State::kHushing && lane->state != State::kClosing) return;
    open = true;
    // The first one had begun already, and may have been of any length.
    if (++lane->rounds <= kAnswerRounds || !heard_all) return;
    Fail(lane->peer, LaneKept(*lane->peer, lane->state));
  });
  if (open) StartLaneRound();
}

void EndpointImpl::OnLaneAnswer(Peer* peer, peer::Bytes body) {
  const auto answer = lane::LoadAnswer(body);
  if (!answer.has_value()) {
    ++counters_.dropped_malformed;
    return;
  }
  InLane* lane = peer->lanes == 0 ? nullptr : LanesOf(peer).in;
  if (lane == nullptr || !lane->reader.has_value() ||
      answer->generation != lane->ask.grant.generation) {
    return;  // of a lane that has ended here
  }
  if (answer->mode == Mode::kLost) return LoseLane(lane);
  if (answer->turn != lane->ask.turn || answer->mode != lane->ask.mode) return;
  if (answer->mode == Mode::kSilent) {
    lane::Next(lane->state, Event::kAnswered, &lane->state);
    return;
  }
  lane->written = answer->written;
  Drain(peer, lane);
}

void EndpointImpl::Hush(InLane* lane) {
  if (!lane::Next(lane->state, Event::kHush, &lane->state)) return;
  ++counters_.lane_hushes;
  AskOf(lane, Mode::kAnnounced);
}

// Who wants to sleep is not busy.
void EndpointImpl::HushAll() {
  ++period_;
  if (watch_.empty()) {
    hushed_ns_ = -1;
    return;
  }
  if (hushed_ns_ < 0) hushed_ns_ = clock_.NowNs();
  watch_.ForEach([this](lane::Watch::Seat* seat) { Hush(static_cast<InLane*>(seat)); });
  SayLaneWords();
}

// How long a sleep may be while something may be written of which no completion tells; -1: as long as it likes.
int64_t EndpointImpl::NapNs() const {
  if (watch_.empty()) return -1;
  if (hushed_ns_ < 0 || clock_.NowNs() - hushed_ns_ < kShortNapsNs) return kShortNapNs;
  return kLongNapNs;
}

// All that was written before the answer has been taken?
void EndpointImpl::CheckEmpty(InLane* lane) {
  if (!lane->written.has_value()) return;
  if (static_cast<int32_t>(lane->reader->taken() - *lane->written) < 0) return;
  if (lane->state == State::kClosing && !LanesOf(lane->peer).held.empty()) return;
  if (!lane::Next(lane->state, Event::kEmpty, &lane->state)) return;
  if (lane->state == State::kAnnounced) return watch_.Leave(lane);
  ++counters_.lanes_closed;
  FreeLane(lane);
}

}  // namespace sluice::endpoint
