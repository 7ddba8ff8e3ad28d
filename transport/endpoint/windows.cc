// SPDX-License-Identifier: Apache-2.0
//
// Windows of receive buffers, which go to the peers that use them (docs/decisions/0067, docs/models/credit_windows.pml):
//
//   sender      active --recalled, used--> none --messages, no window--> asked --grant--> active
//   receiver    in use --another peer waits--> recalled --return--> returned --all messages taken--> free --next in line--> in use
#include <algorithm>
#include <string>
#include <utility>

#include "transport/base/error.h"
#include "transport/endpoint/endpoint_impl.h"

namespace sluice::endpoint {
namespace {

using Out = PeerWindows::Out;

// Windows that are looked at, for one to recall, in the order of their grants.
constexpr uint32_t kMostLooked = 64;
// A peer that was heard in one of so many looks uses its window.
constexpr uint32_t kUsedLooks = 64;
// Windows recalled in one pass.
constexpr uint32_t kMostRecalls = 16;
// A recall without an answer is said again so often within dead_peer_ns. An ask too at first, then after twice the time each.
constexpr int64_t kRepeats = 8;
constexpr uint8_t kMostDoublings = 6;  // of the time between repeats of an ask

absl::Status NotReturned(const Peer& peer, bool answered) {
  return base::Error(
      absl::StatusCode::kUnavailable, "the peer does not return its receive buffers",
      {.layer = "endpoint",
       .peer = peer.address(),
       .operation = "receive",
       .cause = answered ? "messages that it says it has sent have not arrived"
                         : "others wait for the buffers, and it has not answered: its program is "
                           "busy, or holds a reserved message",
       .remedy = "connect again; raise limits.dead_peer_timeout if the peer may be busy that long, "
                 "or limits.receive_buffers"});
}

}  // namespace

// Valid until the next call, and as long as the peer is.
PeerWindows& EndpointImpl::WindowsOf(const Peer* peer) {
  const auto [it, fresh] = windows_.try_emplace(peer->index());
  if (fresh && peer->send.window(peer->remote_window) != 0) it->second.out = Out::kActive;
  return it->second;
}

// The window that the terms of the handshake name.
void EndpointImpl::FirstWindow(Peer* peer) {
  Reception& reception = ReceptionOf(*peer);
  const uint32_t window = reception.FirstWindow(nominal_window_);
  peer->receive.Start(window);
  reception.Promise(peer->index(), window);
}

// The record of the peer is about to be free.
void EndpointImpl::EndWindows(Peer* peer) {
  Reception& reception = ReceptionOf(*peer);
  const auto it = windows_.find(peer->index());
  const bool expected = it != windows_.end() && (it->second.recalling || it->second.returning);
  reception.Free(peer->index(), peer->receive.window(), expected);
  peer->receive.Resize(0);
  if (it != windows_.end()) {
    std::erase(reception.line, peer->id());
    windows_.erase(it);
  }
  if (!reception.line.empty()) window_work_ = WindowWork::kNow;
}

// ---- What the peer says

void EndpointImpl::OnWindowWord(Peer* peer, peer::Kind kind, peer::Bytes body) {
  if (closed_) return;
  const auto word = peer::DecodeWindowWord(body);
  if (!word.has_value()) {
    ++counters_.dropped_malformed;
    return;
  }
  switch (kind) {
    case peer::Kind::kWindowAsk:
      return OnWindowAsk(peer, *word);
    case peer::Kind::kWindowGrant:
      return OnWindowGrant(peer, *word);
    case peer::Kind::kWindowRecall:
      return OnWindowRecall(peer, *word);
    default:
      return OnWindowReturn(peer, *word);
  }
}

// Numbers count up by one, so a word is for the present window, late, or a lie.
void EndpointImpl::OnWindowAsk(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.number);
  if (ahead < 0) return;
  if (ahead == 0) {  // once more: the grant may have been lost
    if (windows.waits || windows.returning || peer->receive.window() == 0) return;
    windows.owes_grant = true;
    return OweWindowWord(peer, &windows);
  }
  if (ahead > 1 || windows.waits) {
    return EndWindowOffender(peer, "it asks for window " + std::to_string(word.number) +
                                       ", and has " + (windows.waits ? "asked for " : "had ") +
                                       std::to_string(windows.number));
  }
  // It says as well that the window before is returned, should that have been lost.
  if (peer->receive.window() != 0 && !BeginReturn(peer, word.count)) return;
  windows.number = word.number;
  windows.waits = true;
  if (peer->receive.window() == 0) ReceptionOf(*peer).line.push_back(peer->id());
  window_work_ = WindowWork::kNow;
}

void EndpointImpl::OnWindowReturn(Peer* peer, const peer::WindowWord& word) {
  const PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.number);
  if (ahead < 0) return;
  if (ahead > 0 || windows.waits) {
    return EndWindowOffender(
        peer, "it returns window " + std::to_string(word.number) + ", which it does not have");
  }
  if (peer->receive.window() != 0) BeginReturn(peer, word.count);  // else it was said before
}

// The peer has said that it returns its window, after `sent` messages. False: the peer was ended, since it lies.
bool EndpointImpl::BeginReturn(Peer* peer, uint32_t sent) {
  PeerWindows& windows = WindowsOf(peer);
  const uint32_t window = peer->receive.window();
  const bool again = windows.returning;
  if (sent - peer->receive.consumed() > window || (again && sent != windows.until)) {
    EndWindowOffender(peer, "it says that it has sent " + std::to_string(sent) +
                                " messages: " + std::to_string(peer->receive.consumed()) +
                                " have come, and its window is " + std::to_string(window));
    return false;
  }
  if (again) return true;
  if (!windows.recalling) ReceptionOf(*peer).Expect(peer->index(), window);
  windows.returning = true;
  windows.owes_grant = windows.owes_recall = false;
  windows.until = sent;
  // Its requests may fail, and what was lost is sent again.
  WatchReturn(peer, &windows, clock_.NowNs() + 2 * options_.dead_peer_ns);
  returning_.push_back(peer->id());
  window_work_ = WindowWork::kNow;
  return true;
}

void EndpointImpl::OnWindowGrant(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.asked);
  if (ahead > 0 || word.count == 0 || word.count > peer->remote_window) {
    return EndWindowOffender(peer, "it grants window " + std::to_string(word.number) + " of " +
                                       std::to_string(word.count) + " messages; window " +
                                       std::to_string(windows.asked) + " was asked for, of " +
                                       std::to_string(peer->remote_window) + " at most");
  }
  if (ahead < 0 || windows.out != Out::kAsked) return;
  windows.out = Out::kActive;
  windows.recalled = false;
  ResizeSendWindow(peer, word.count);
}

void EndpointImpl::OnWindowRecall(Peer* peer, const peer::WindowWord& word) {
  PeerWindows& windows = WindowsOf(peer);
  const auto ahead = static_cast<int32_t>(word.number - windows.asked);
  if (ahead > 0) {
    return EndWindowOffender(peer, "it recalls window " + std::to_string(word.number) +
                                       ", and has granted " + std::to_string(windows.asked));
  }
  if (windows.out == Out::kActive) {
    if (ahead < 0) return;
    windows.recalled = true;
  } else {
    windows.owes_word = true;  // the return, or the ask that says it as well, may have been lost
  }
  OweWindowWord(peer, &windows);
}

void EndpointImpl::EndWindowOffender(Peer* peer, const std::string& cause) {
  Fail(peer, base::Error(absl::StatusCode::kUnavailable, "the peer broke the rules of windows",
                         {.layer = "endpoint",
                          .peer = peer->address(),
                          .operation = "receive",
                          .cause = cause,
                          .remedy = "run the same release of Sluice on both sides; a peer that is "
                                    "meant to do this holds the secret: replace it"}));
}

// ---- Sender

void EndpointImpl::ResizeSendWindow(Peer* peer, uint32_t in_use) {
  peer->send.Resize(peer->remote_window, in_use);
  if (SendRing* ring = RingTo(*peer)) ring->SetLimit(peer->send, peer->remote_window);
}

// There is something to send, and no window.
void EndpointImpl::AskForWindow(Peer* peer) {
  PeerWindows& windows = WindowsOf(peer);
  if (windows.out != Out::kNone) return;
  windows.out = Out::kAsked;
  ++windows.asked;
  windows.used_before = peer->send.used();
  windows.asked_ns = clock_.NowNs();
  windows.asks = 0;
  windows.owes_word = true;
  ++counters_.windows_asked;
  OweWindowWord(peer, &windows);
}

// A control message may be lost without a word to its sender: on a stream that the peer's target has left (docs/decisions/0067).
void EndpointImpl::AskForWindowAgain(Peer* peer) {
  PeerWindows& windows = WindowsOf(peer);
  const int64_t now_ns = clock_.NowNs();
  if (windows.out == Out::kNone) return AskForWindow(peer);
  // Each time after twice as long: whoever waits with many others must not fill the receiver's control queue.
  const int64_t period_ns = options_.dead_peer_ns / kRepeats << windows.asks;
  if (now_ns - windows.asked_ns < period_ns) return;
  windows.asked_ns = now_ns;
  if (windows.asks < kMostDoublings) ++windows.asks;
  windows.owes_word = true;
  OweWindowWord(peer, &windows);
}

// Not while a message is reserved: nobody knows yet whether it will be sent. And a window that was asked for carries a message
// first, or recalls and asks could alternate without end; unless there is no buffer to write one into.
bool EndpointImpl::MayReturnWindow(const Peer& peer, const PeerWindows& windows) const {
  if (peer.committed != static_cast<uint16_t>(peer.send.used())) return false;
  return !peer.blocked || peer.send.used() != windows.used_before || slots_->free_data() == 0;
}

void EndpointImpl::ReturnWindow(Peer* peer, PeerWindows* windows) {
  ResizeSendWindow(peer, 0);
  windows->recalled = false;
  windows->out = Out::kNone;
  windows->owes_word = true;
  if (peer->blocked) AskForWindow(peer);  // which says both
}

// ---- Words

void EndpointImpl::OweWindowWord(Peer* peer, PeerWindows* windows) {
  if (std::exchange(windows->listed, true)) return;
  window_words_.push_back(peer->id());
}

void EndpointImpl::SayWindowWords() {
  size_t kept = 0;
  for (size_t i = 0; i < window_words_.size(); ++i) {
    const PeerId id = window_words_[i];
    Peer* peer = Find(id);
    const auto it = peer == nullptr ? windows_.end() : windows_.find(id.index);
    if (it == windows_.end()) continue;
    if (SayWindowWords(peer, &it->second)) {
      it->second.listed = false;
    } else {
      window_words_[kept++] = id;  // no control slot now; they come back
    }
  }
  window_words_.resize(kept);
}

// False: no control slot is free.
bool EndpointImpl::SayWindowWords(Peer* peer, PeerWindows* windows) {
  if (peer->state != peer::State::kUp) return true;
  const auto say = [&](bool* owes, peer::Kind kind, const peer::WindowWord& word) {
    if (!*owes) return true;
    if (!PostBody(peer, kind, peer::EncodeWindowWord(word))) return false;
    *owes = false;
    return true;
  };
  if (windows->recalled) {
    if (MayReturnWindow(*peer, *windows)) {
      ReturnWindow(peer, windows);
    } else {
      held_returns_.push_back(peer->id());
      window_work_ = std::max(window_work_, WindowWork::kLook);
      StartWindowTimer();
    }
  }
  const auto kind =
      windows->out == Out::kAsked ? peer::Kind::kWindowAsk : peer::Kind::kWindowReturn;
  return say(&windows->owes_grant, peer::Kind::kWindowGrant,
             {.number = windows->number, .count = peer->receive.window()}) &&
         say(&windows->owes_recall, peer::Kind::kWindowRecall,
             {.number = windows->number, .count = 0}) &&
         say(&windows->owes_word, kind, {.number = windows->asked, .count = peer->send.used()});
}

// After an error of the requests to the peer: whatever follows from the state, again.
void EndpointImpl::RepeatWindowWords(Peer* peer) {
  const auto it = windows_.find(peer->index());
  if (it == windows_.end()) return;
  PeerWindows& windows = it->second;
  windows.owes_word = windows.out != Out::kActive;
  const bool has_window = peer->receive.window() != 0 && !windows.returning;
  windows.owes_grant = has_window && windows.number != 0;
  windows.owes_recall = has_window && windows.recalling;
  if (windows.owes_recall) windows.due_ns = clock_.NowNs() + options_.dead_peer_ns;
  OweWindowWord(peer, &windows);
}

// ---- Receiver

void EndpointImpl::MoveWindows() {
  window_work_ = WindowWork::kNone;
  if (closed_) return;
  for (const PeerId id : std::exchange(held_returns_, {})) {
    Peer* peer = Find(id);
    if (peer != nullptr) OweWindowWord(peer, &WindowsOf(peer));
  }
  SettleReturns();
  for (Reception& reception : receptions_) {
    if (reception.line.empty()) continue;
    GrantWindows(&reception);
    if (!reception.line.empty()) RecallWindows(&reception);
  }
  if (!returning_.empty()) window_work_ = std::max(window_work_, WindowWork::kLook);
}

// A return may overtake messages that were sent before: data and control are read from two queues.
void EndpointImpl::SettleReturns() {
  size_t kept = 0;
  for (size_t i = 0; i < returning_.size(); ++i) {
    const PeerId id = returning_[i];
    Peer* peer = Find(id);
    if (peer == nullptr || peer->state != peer::State::kUp) continue;
    PeerWindows& windows = WindowsOf(peer);
    const auto ahead = static_cast<int32_t>(peer->receive.consumed() - windows.until);
    if (ahead < 0) {
      returning_[kept++] = id;
      continue;
    }
    if (ahead > 0) {
      EndWindowOffender(peer, "it has sent " + std::to_string(peer->receive.consumed()) +
                                  " messages, and said " + std::to_string(windows.until));
      continue;
    }
    Reception& reception = ReceptionOf(*peer);
    reception.Free(peer->index(), peer->receive.window(), /*expected=*/true);
    peer->receive.Resize(0);
    windows.returning = windows.recalling = false;
    if (windows.waits) {
      reception.line.push_back(id);
    } else {
      // Its sender keeps the messages until it hears that they have arrived.
      peer->report_requested_by_peer = true;
      QueueCreditReport(peer);
    }
  }
  returning_.resize(kept);
}

void EndpointImpl::GrantWindows(Reception* reception) {
  while (!reception->line.empty()) {
    const PeerId id = reception->line.front();
    Peer* peer = Find(id);
    if (peer != nullptr && peer->state == peer::State::kUp) {
      const uint32_t window = reception->WindowForOne(nominal_window_);
      if (window == 0) return;
      PeerWindows& windows = WindowsOf(peer);
      windows.waits = false;
      windows.owes_grant = true;
      peer->receive.Resize(window);
      reception->Promise(peer->index(), window);
      ++counters_.windows_granted;
      OweWindowWord(peer, &windows);
    }
    reception->line.pop_front();
  }
}

void EndpointImpl::RecallWindows(Reception* reception) {
  for (uint32_t count = 0; reception->Missing(nominal_window_) != 0; ++count) {
    Peer* peer = count < kMostRecalls ? HolderToRecall(*reception) : nullptr;
    if (peer == nullptr) {
      if (count == kMostRecalls) window_work_ = WindowWork::kNow;
      return;
    }
    PeerWindows& windows = WindowsOf(peer);
    windows.recalling = true;
    windows.owes_recall = true;
    WatchReturn(peer, &windows, clock_.NowNs() + options_.dead_peer_ns);
    reception->Expect(peer->index(), peer->receive.window());
    ++counters_.windows_recalled;
    OweWindowWord(peer, &windows);
  }
}

// The window that has been unused for the longest time; if all are in use, the one that was granted first. Null: none.
Peer* EndpointImpl::HolderToRecall(const Reception& reception) {
  Peer* first = nullptr;
  Peer* idlest = nullptr;
  uint32_t most = kUsedLooks;
  uint32_t looked = 0;
  for (const uint32_t index : reception.holders) {
    if (looked == kMostLooked) break;
    Peer* peer = &peers_[index];
    if (peer->state != peer::State::kUp) continue;
    ++looked;
    if (first == nullptr) first = peer;
    const auto age = static_cast<uint16_t>(look_ - peer->receive.last_look());
    if (age <= most || (peer->lanes != 0 && LaneIsUsed(*peer))) continue;
    most = age;
    idlest = peer;
  }
  return idlest != nullptr ? idlest : first;
}

// Looks don't see messages in a lane.
bool EndpointImpl::LaneIsUsed(const Peer& peer) {
  InLane* lane = LanesOf(&peer).in;
  if (lane == nullptr || !lane->reader.has_value()) return false;
  const uint32_t taken = lane->reader->taken();
  return taken != std::exchange(lane->window_marked, taken);
}

// ---- Deadlines

void EndpointImpl::WatchReturn(Peer* peer, PeerWindows* windows, int64_t due_ns) {
  windows->due_ns = due_ns;
  if (!std::exchange(windows->watched, true)) recalls_.push_back(peer->id());
  StartWindowTimer();
}

void EndpointImpl::StartWindowTimer() {
  if (window_timer_.armed()) return;
  timers_.Schedule(&window_timer_, clock_.NowNs() + options_.dead_peer_ns / kRepeats);
}

void EndpointImpl::OnWindowTime(base::Timer*, void* context) {
  static_cast<EndpointImpl*>(context)->LookForReturns();
}

// Disconnects peers that keep buffers for which others wait.
void EndpointImpl::LookForReturns() {
  if (closed_) return;
  const bool heard_all = ReceiveAll();  // this process may have been stopped for long
  SettleReturns();                      // what a window was kept for may have come with that
  size_t kept = 0;
  for (size_t i = 0; i < recalls_.size(); ++i) {
    const PeerId id = recalls_[i];
    Peer* peer = Find(id);
    const auto it = peer == nullptr ? windows_.end() : windows_.find(id.index);
    if (it == windows_.end()) continue;
    if (!it->second.recalling && !it->second.returning) {
      it->second.watched = false;
      continue;
    }
    if (peer->state == peer::State::kUp && heard_all && clock_.NowNs() >= it->second.due_ns) {
      Fail(peer, NotReturned(*peer, it->second.returning));
      continue;
    }
    if (peer->state == peer::State::kUp && !it->second.returning) {
      it->second.owes_recall = true;
      OweWindowWord(peer, &it->second);
    }
    recalls_[kept++] = id;
  }
  recalls_.resize(kept);
  if (!recalls_.empty() || !held_returns_.empty()) StartWindowTimer();
}

}  // namespace sluice::endpoint
