// SPDX-License-Identifier: Apache-2.0
//
// Sleep while this side reads lanes: requests to their senders, and checks of the answers (docs/decisions/0026).
#include <algorithm>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using lane::Event;
using lane::Mode;
using lane::State;

// Maximum sleep until all lanes are announced: kShortNapNs at first, because most senders answer at once, and kLongNapNs after
// kShortNapsNs.
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
  if (mode == Mode::kAnnounced && !lane->unannounced.has_value()) {
    lane->unannounced = lane->reader->value();
  }
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

// Disconnects peers that do not follow a request: such a peer prevents this process from sleeping, or keeps lane memory that other
// peers need.
void EndpointImpl::LookForAnswers() {
  if (closed_) return;
  const bool heard_all = ReceiveAll();  // this process may have been stopped for long
  bool open = false;
  watch_.ForEach([&](lane::Watch::Seat* seat) {
    auto* lane = static_cast<InLane*>(seat);
    if (lane->state != State::kHushing && lane->state != State::kClosing) return;
    open = true;
    // The first round had begun before the request, so it may have been short.
    if (++lane->rounds <= kAnswerRounds || !heard_all) return;
    Fail(lane->peer, LaneKept(*lane->peer, lane->state));
  });
  if (open) StartLaneRound();
}

void EndpointImpl::OnLaneAnswer(Peer* peer, peer::Bytes body) {
  const auto answer = lane::LoadAnswer(body);
  if (!answer.has_value()) {
    ++counters_.dropped_malformed;
    return EndSender(peer);
  }
  InLane* lane = peer->lanes == 0 ? nullptr : LanesOf(peer).in;
  if (lane == nullptr || !lane->reader.has_value() ||
      answer->generation != lane->ask.grant.generation) {
    return;  // the lane has ended at this side
  }
  if (answer->mode == Mode::kLost) return LoseLane(lane);
  if (answer->turn != lane->ask.turn || answer->mode != lane->ask.mode) return;
  if (answer->mode == Mode::kSilent) {
    lane->unannounced.reset();
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

// Asks the senders of all watched lanes to announce, before a sleep. Also ends the period of lane::Heat.
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

// Returns the maximum sleep while messages may arrive without completions. -1: no limit.
int64_t EndpointImpl::NapNs() const {
  if (watch_.empty()) return -1;
  if (hushed_ns_ < 0 || clock_.NowNs() - hushed_ns_ < kShortNapsNs) return kShortNapNs;
  return kLongNapNs;
}

// Advances the state of a lane if all messages written before the answer have been taken.
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
